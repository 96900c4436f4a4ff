import PosternCore
import PosternTestKit
import Testing

@testable import PosternCommands

@Suite struct ProgressTests {
    @Test func line_showsTheCount_andIsErasedAtTheEnd() throws {
        let shown = Inbox<String>()
        let line = Progress.showing("exporting", on: { shown.put($0) }, every: .milliseconds(1)) { progress -> String in
            progress.advance()
            progress.advance()
            // The work ends once a line with both figures has been written.
            let deadline = SystemTime().instant + longestWait
            while SystemTime().instant < deadline {
                if let line = shown.takeAll(waitingUntil: deadline).first(where: { $0.contains(": 2, ") }) {
                    return line
                }
            }
            return ""
        }
        #expect(line.hasPrefix(Progress.erasing + "exporting: 2, "))
        #expect(shown.takeAll(waitingUntil: SystemTime().instant).last == Progress.erasing)
    }

    @Test func shortWork_showsNothing() {
        let shown = Inbox<String>()
        #expect(Progress.showing("counting", on: { shown.put($0) }, every: .seconds(3600)) { _ in 7 } == 7)
        #expect(shown.takeAll(waitingUntil: SystemTime().instant).isEmpty)
    }

    @Test func asyncWork_isShown() async {
        let shown = Inbox<String>()
        await Progress.showingAsync("removing", on: { shown.put($0) }, every: .milliseconds(1)) { _ in
            #expect(
                shown.takeAll(waitingUntil: SystemTime().instant + longestWait).first?.contains("removing: ") == true)
        }
        #expect(shown.takeAll(waitingUntil: SystemTime().instant).last == Progress.erasing)
    }

    @Test(arguments: [
        (0, 0, 300, "w: 300 s"), (1200, 0, 4, "w: 1200, 300/s"), (1200, 5000, 4, "w: 1200 of 5000, 300/s"),
        (5000, 5000, 4, "w: 5000 of 5000, 1250/s"), (7, 5, 1, "w: 7, 7/s"),
    ])
    func line_showsCountAndRate_orElseTheTime(count: Int, total: Int, seconds: Int, text: String) {
        #expect(Progress.line("w", count, of: total, after: .seconds(seconds)) == text)
    }
}
