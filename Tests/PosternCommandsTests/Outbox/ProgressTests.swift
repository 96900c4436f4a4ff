import PosternCore
import PosternTestKit
import PosternThreads
import Testing

@testable import PosternCommands

@Suite struct ProgressTests {
    private let shown = Inbox<String>()
    private let time = ManualTime()
    private var lines: [String] { shown.takeAll(waitingUntil: SystemTime().instant) }

    private func progress() -> Progress { Progress("exporting", on: { [shown] in shown.put($0) }, time: time) }

    @Test func line_showsCountAndRate_onceASecond_andIsErasedAtTheEnd() {
        let progress = progress()
        for _ in 0..<8 {
            time.advance(by: .milliseconds(500))
            progress.advance()
        }
        #expect(lines == [2, 4, 6, 8].map { Progress.erasing + "exporting: \($0), 2/s" })
        progress.erase()
        #expect(lines == [Progress.erasing])
    }

    @Test func line_showsTheEnd_ifThatIsKnown() {
        let progress = progress()
        time.advance(by: .seconds(4))
        progress.advance(to: 1200, of: 5000)
        #expect(lines == [Progress.erasing + "exporting: 1200 of 5000, 300/s"])
    }

    @Test func shortWork_showsNothing() {
        let progress = progress()
        time.advance(by: .milliseconds(999))
        progress.advance()
        progress.erase()
        #expect(lines.isEmpty)
    }
}
