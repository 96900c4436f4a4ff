import PosternGatewayTestKit
import Testing

@testable import PosternCommands

@Suite struct CheckReportTests {
    private func report(on text: String, asJSON: Bool = false) throws -> (text: String, exitCode: Int32) {
        let scratch = try ScratchConfiguration(text)
        let report = CheckReport(on: scratch.loader(), asJSON: asJSON, triesToStart: false)
        return (report.text.replacing(scratch.directory, with: "DIR"), report.exitCode)
    }

    @Test(arguments: [
        ("{}", "no upstream, to listen on 127.0.0.1:8080"),
        (#"{"server": {"host": "::1", "port": 5}, "upstreams": {"post": {}}}"#, "upstream post, to listen on [::1]:5"),
        (
            #"{"upstreams": {"a": {"type": "post"}, "b": {"type": "post"}, "trap": {"enabled": false}}}"#,
            "upstreams a, b, to listen on 127.0.0.1:8080"
        ),
    ])
    func goodConfiguration_isSummedUp_withExitCode0(file: String, summary: String) throws {
        let report = try report(on: file)
        #expect(report.text.split(separator: "\n").first == "DIR/config.json is fine: \(summary).")
        #expect(report.exitCode == 0)
    }

    @Test func problems_areListed_withExitCode78() throws {
        let report = try report(on: #"{"server": {"port": -1}, "log": {"levle": ""}}"#)
        #expect(
            report.text == """
                The configuration DIR/config.json has 2 problems:
                  log.levle is unknown; did you mean log.level?
                  server.port is -1; allowed 0 to 65535
                """)
        #expect(report.exitCode == 78)
    }

    @Test func json_holdsEachProblem() throws {
        let report = try report(on: #"{"server": {"port": "x"}}"#, asJSON: true)
        #expect(
            report.text
                == #"{"file":"DIR/config.json","valid":false,"problems":[{"path":"server.port","#
                + #""detail":"is \"x\"; expected a whole number, 0 to 65535"}],"warnings":[]}"#)
        #expect(report.exitCode == 78)
    }

    @Test func json_saysThatAGoodConfigurationIsValid() throws {
        let report = try report(on: "{}", asJSON: true)
        #expect(report.text == #"{"file":"DIR/config.json","valid":true,"problems":[],"warnings":[]}"#)
        #expect(report.exitCode == 0)
    }
}
