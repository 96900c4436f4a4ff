import Glibc
import PosternUpstream
import Testing

@testable import PosternProcess

@Suite struct PassedSocketsTests {
    /// Which sockets the process of the tests has is chance.
    @Test(.timeLimit(.minutes(10)), arguments: ["2147483647", "-1", "many"])
    func numberThatCannotBeRight_endsNothing(number: String) {
        _ = PassedSockets(environment: ["LISTEN_PID": "\(getpid())", "LISTEN_FDS": number])
    }

    @Test func socketsOfAnotherProcess_areLeftAlone() {
        #expect(PassedSockets(environment: ["LISTEN_PID": "1", "LISTEN_FDS": "9"]).settings.isEmpty)
    }
}
