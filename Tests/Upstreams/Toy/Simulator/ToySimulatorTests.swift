import PosternSimulatorKit
import Testing

@Suite struct ToySimulatorTests {
    @Test(arguments: [("/notes", "toy-key", 201), ("/notes", "another", 401), ("/other", "toy-key", 404)])
    func note_isAccepted_withTheKeyAlone(path: String, key: String, status: Int) {
        let request = SimulatedRequest(
            method: "POST", path: path, headers: [("X-Key", key)], body: Array(#"{"text":"hello"}"#.utf8))
        #expect(ToySimulator().judge(request, poisons: []).answer?.status == status)
    }
}
