import Foundation
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternCommands

@Suite struct ImportTests {
    private let folder = ScratchFolder()

    private func line(_ text: String, state: MessageState = .queued) -> ImportLine {
        ImportLine(Array(text.utf8), state: state)
    }

    private func envelope(_ text: String) -> ImportLine { .envelope(Array(text.utf8)) }

    @Test func exportedMessage_becomesAnEnvelope_withItsPayloadAsItIs() {
        #expect(
            line(
                #"{"id":"a","upstream":"s","kind":"e","state":"queued","key":"k","via":"sdk","payload":{ "n": 1.50 },"expiresAt":"t","notBefore":null}"#
            ) == envelope(#"{"upstream":"s","kind":"e","key":"k","expiresAt":"t","via":"sdk","payload":{ "n": 1.50 }}"#)
        )
    }

    @Test func messagesInAnotherState_andWithoutPayload_areSkipped() {
        let failed = #"{"id":"a","upstream":"s","kind":"e","state":"failed","payload":{}}"#
        #expect(line(failed) == .skipped)
        #expect(line(failed, state: .failed) == envelope(#"{"upstream":"s","kind":"e","payload":{}}"#))
        #expect(line(#"{"id":"a","upstream":"s","kind":"e","state":"queued","payload":null}"#) == .skipped)
    }

    @Test func lineThatIsNotOfAnExport_isReported() {
        guard case .invalid = line("{"), case .invalid = line("[]"), case .invalid = line(#"{"upstream":"s"}"#) else {
            return #expect(Bool(false))
        }
    }

    @Test func requestKeys_tellRequestsApart_thatHoldTheSameMessages() {
        func request(_ line: Int) -> ImportRequest {
            var request = ImportRequest()
            request.add(Array("{}".utf8), of: line)
            request.add(Array("{}".utf8), of: line + 1)
            return request
        }
        #expect(request(1).idempotencyKey == request(1).idempotencyKey)
        #expect(request(1).idempotencyKey != request(3).idempotencyKey)
        #expect(request(5).single.map(\.lines) == [[5], [6]])
    }

    /// A repeat whose first try is still running is not taken for a message that the gateway refuses.
    @Test func conflictThatWillEnd_isWaitedFor() {
        #expect(OutboxImport.isTemporary(UpstreamResponse(status: 409, headers: [("Retry-After", "1")])))
        #expect(!OutboxImport.isTemporary(UpstreamResponse(status: 409)))
        #expect(OutboxImport.isTemporary(UpstreamResponse(status: 507)))
        #expect(!OutboxImport.isTemporary(UpstreamResponse(status: 422)))
    }

    // MARK: The file of an export

    private func export(_ lines: [String], resuming: Bool) throws -> MessageID? {
        let file = try ExportFile(folder.file("out"), isContinued: resuming)
        for line in lines { try file.write(line) }
        try file.finish()
        return file.last
    }

    private func text() throws -> String { try String(contentsOfFile: folder.file("out"), encoding: .utf8) }

    @Test func interruptedExport_continuesAfterItsLastCompleteLine() throws {
        let id = MessageID(rawValue: 77)
        let whole = #"{"id":"\#(id)"}"# + "\n"
        try (whole + #"{"id":"#).write(toFile: folder.file("out"), atomically: true, encoding: .utf8)
        #expect(try export(["b"], resuming: true) == id)
        #expect(try text() == whole + "b\n")
    }

    @Test func link_isNotContinued_andAModeForOthersIsNotKept() throws {
        let victim = folder.file("victim")
        let whole = #"{"id":"\#(MessageID(rawValue: 77))"}"# + "\n"
        try whole.write(toFile: victim, atomically: true, encoding: .utf8)
        symlink(victim, folder.file("out"))
        let failure = #expect(throws: CommandFailure.self) { try export(["b"], resuming: true) }
        #expect("\(try #require(failure))".contains("out: it is a symbolic link; remove it."))
        #expect(try String(contentsOfFile: victim, encoding: .utf8) == whole)
        unlink(folder.file("out"))
        try whole.write(toFile: folder.file("out"), atomically: true, encoding: .utf8)
        chmod(folder.file("out"), 0o666)
        #expect(try export(["b"], resuming: true) != nil)
        var status = stat()
        #expect(stat(folder.file("out"), &status) == 0 && status.st_mode & 0o777 == 0o600)
    }

    @Test(arguments: [
        "a text without an end", "a\nb", #"{"id":"no"}"# + "\n{", #"{"id":"\#(MessageID(rawValue: 7))"}"# + "\nb",
    ])
    func anotherFile_isLeftAsItIs(content: String) throws {
        try content.write(toFile: folder.file("out"), atomically: true, encoding: .utf8)
        #expect(throws: CommandFailure.self) { try export(["b"], resuming: true) }
        #expect(try text() == content)
    }

    @Test func exportThatWasInterruptedAtItsStart_beginsAgain() throws {
        for content in ["", #"{"i"#, #"{"id":"a"#] {
            try content.write(toFile: folder.file("out"), atomically: true, encoding: .utf8)
            #expect(try export(["b"], resuming: true) == nil)
            #expect(try text() == "b\n")
        }
    }

    @Test func export_neverOverwritesAFile() throws {
        _ = try export(["a"], resuming: false)
        #expect(throws: CommandFailure.self) { try export(["b"], resuming: false) }
        #expect(throws: CommandFailure.self, "it is not an export") { try export(["b"], resuming: true) }
        #expect(try text() == "a\n")
    }
}
