import Glibc
import PosternCore
import PosternProcess
import Testing

@testable import PosternGateway

@Suite struct ServiceReportTests {
    private func condition(_ change: (inout ServiceReport.Condition) -> Void = { _ in }) -> ServiceReport.Condition {
        var condition = ServiceReport.Condition()
        change(&condition)
        return condition
    }

    @Test func ready_isReportedOnce_whenReadyzIs200() {
        var report = ServiceReport()
        let full = condition { $0.reasons = ["store: full"] }
        for _ in 0..<2 {
            #expect(
                report.message(on: full) == [
                    "EXTEND_TIMEOUT_USEC=30000000", "WATCHDOG=1",
                    "STATUS=Not ready: store: full; 0 queued, 0 in flight",
                ])
        }
        #expect(report.message(on: condition()).first == "READY=1")
        #expect(report.message(on: full).first == "WATCHDOG=1", "a full disk later is no reason for a restart")
    }

    /// A manager that is busy must not stop the thread that reloads and stops the gateway.
    @Test func managerThatDoesNotRead_isNotWaitedForForLong() throws {
        let name = "@postern-test-\(getpid())"
        let socket = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)
        defer { close(socket) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { path in
            path.copyBytes(from: Array(name.utf8))
            path[0] = 0
        }
        let length = socklen_t(MemoryLayout<sa_family_t>.size + name.utf8.count)
        let result = withUnsafePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(socket, $0, length) }
        }
        try #require(result == 0)
        let manager = try #require(ServiceManager(environment: ["NOTIFY_SOCKET": name]))
        #expect(manager.notify(["READY=1"]))
        // Linux keeps some datagrams for the reader, by default ten (unix(7)).
        #expect((0..<10_000).contains { _ in !manager.notify(["WATCHDOG=1"]) })
    }

    @Test func status_hasTheQueue_andTheUpstreamsThatAreNotUp() {
        var report = ServiceReport()
        _ = report.message(on: condition())
        let busy = condition {
            ($0.queued, $0.inFlight) = (42, 3)
            $0.upstreams = [("seer", "unauthorized"), ("samsara", "down")]
        }
        #expect(
            report.message(on: busy) == [
                "WATCHDOG=1", "STATUS=Accepting messages; 42 queued, 3 in flight; seer unauthorized, samsara down",
            ])
    }

    @Test func stalledWorker_leavesTheWatchdogOut() {
        var report = ServiceReport()
        _ = report.message(on: condition())
        let stalled = condition { ($0.isStalled, $0.reasons) = (true, ["worker a is stalled"]) }
        #expect(report.message(on: stalled).map { $0.prefix(7) } == ["STATUS="])
    }

    @Test func period_isAThirdOfTheWatchdogs_orLess() {
        #expect(ServiceReport.period(nil) == .seconds(5))
        #expect(ServiceReport.period(.seconds(60)) == .seconds(5))
        #expect(ServiceReport.period(.seconds(6)) == .seconds(2))
        #expect(ServiceReport.period(.microseconds(Int64.max)) == .seconds(5))
        #expect(ServiceReport.period(.microseconds(1)) == .milliseconds(10), "the main thread also has other work")
    }

    @Test(arguments: ["0", "-1", "", "soon", "99999999999999999999"])
    func watchdog_isOff_ifItsPeriodIsNotAPositiveNumber(period: String) throws {
        let manager = try #require(ServiceManager(environment: ["NOTIFY_SOCKET": "/no/such", "WATCHDOG_USEC": period]))
        #expect(manager.watchdogPeriod == nil)
    }

    @Test func watchdog_ofAnotherProcess_isNotFed() {
        let environment = ["NOTIFY_SOCKET": "/no/such", "WATCHDOG_USEC": "9000000"]
        #expect(ServiceManager(environment: environment)?.watchdogPeriod == .seconds(9))
        let other = environment.merging(["WATCHDOG_PID": "1"]) { $1 }
        #expect(ServiceManager(environment: other)?.watchdogPeriod == nil)
        #expect(ServiceManager(environment: [:]) == nil)
        #expect(ServiceManager(environment: ["NOTIFY_SOCKET": "relative"]) == nil)
    }
}
