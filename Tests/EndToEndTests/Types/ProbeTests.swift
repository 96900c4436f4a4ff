import Foundation
import PosternConformance
import PosternTestKit
import PosternUpstream
import Testing

extension EndToEnd {
    /// `POST /v1/upstreams/{name}/probe` over real sockets, to strict simulators.
    @Suite struct Probes {
        /// A type with its simulator, and the settings that it accepts and rejects.
        struct Case: Sendable, CustomTestStringConvertible {
            let type: String
            /// The credentials that the simulator accepts.
            var control = ""
            /// The setting with the address, and what is appended to it.
            let address: String
            var right: [String: String] = [:]
            /// Nil if the type has no credentials.
            var wrong: [String: String]?
            var testDescription: String { type }

            func upstream(_ url: String, _ more: [String: String] = [:]) -> [String: Any] {
                var settings: [String: Any] = ["type": type, address: url]
                settings.merge(right.merging(more) { $1 }) { $1 }
                // The simulator counts the requests of the probe alone.
                if ["seer", "webhook"].contains(type) { settings["verifyAtStart"] = false }
                guard type == "webhook" else { return settings }
                settings[address] = url
                settings["auth"] = [
                    "type": "oauth2", "tokenURL": url + "/token", "clientId": "id",
                    "clientSecret": more["clientSecret"] ?? "s3cret",
                ]
                settings["clientSecret"] = nil
                return settings
            }
        }

        static let cases = [
            Case(
                type: "seer", control: #"{"clientId":"gw","clientSecret":"s3cret","apiKey":"KEY"}"#, address: "baseURL",
                right: ["clientId": "gw", "clientSecret": "s3cret", "apiKey": "KEY"], wrong: ["clientSecret": "other"]),
            Case(
                type: "webhook", control: #"{"clientId":"id","clientSecret":"s3cret"}"#, address: "url",
                wrong: ["clientSecret": "other"]),
            Case(
                type: "streamone", address: "apiUrl",
                right: ["id": "9yC-4pQxT_2a", "psk": "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu"],
                wrong: ["psk": "AYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu"]),
            Case(type: "samsara", address: "url"),
        ]

        private func probe(_ upstream: [String: Any]) async throws -> JSON {
            var settings = Settings()
            settings.upstreams = ["tried": upstream]
            let gateway = try await GatewayDirectory(settings).start()
            let answer = try gateway.client().post("/v1/upstreams/tried/probe")
            try await gateway.stop()
            #expect(answer.status == 200, "\(answer.text)")
            #expect(!answer.text.contains("s3cret") && !answer.text.contains("other"))
            return answer.json
        }

        @Test(.timeLimit(.minutes(10)), arguments: cases)
        func probe_tellsGoodCredentials_fromWrongOnes_andFromNoUpstream(tried: Case) async throws {
            let simulator = try HostedSimulator(tried.type)
            if !tried.control.isEmpty { try simulator.control(tried.control) }
            let good = try await probe(tried.upstream(simulator.url))
            #expect(good["outcome"].string == "ok" && good["status"].int == 200, "\(good)")
            #expect(good["upstream"].string == "tried" && good["durationMs"].int.map { $0 >= 0 } == true)
            let received = try simulator.received
            #expect(received["requests"].int == 1, "\(received)")
            #expect(received["violationCount"].int == 0, "\(received["violations"])")
            if let wrong = tried.wrong {
                let refused = try await probe(tried.upstream(simulator.url, wrong))
                #expect(refused["outcome"].string == "unauthorized", "\(refused)")
            }
            let absent = try await probe(tried.upstream("http://127.0.0.1:1"))
            #expect(absent["outcome"].string == "unreachable" && absent["status"].isThere == false, "\(absent)")
        }

        @Test(
            .timeLimit(.minutes(10)),
            arguments: [
                ("curio", "serverURL", ["apiKey": "k", "trackingCode": "GW7DEM01"]),
                ("appservices", "baseURL", ["organization": "o", "application": "a", "apiKey": "k"]),
                ("webhook", "url", [:]),
            ])
        func probe_onlyConnects_ifNoRequestIsHarmless(
            type: String, address: String, settings: [String: String]
        ) async throws {
            let simulator = try HostedSimulator(type)
            // It does not speak TLS.
            let secure = simulator.url.replacing("http:", with: "https:")
            var upstream: [String: Any] = ["type": type, address: simulator.url]
            upstream.merge(settings) { $1 }
            let report = try await probe(upstream)
            #expect(report["outcome"].string == "ok" && report["status"].isThere == false, "\(report)")
            #expect(report["detail"].string?.hasPrefix("connected by TCP, and sent nothing") == true, "\(report)")
            #expect(try simulator.received["requests"].int == 0)
            let failures = [("http://127.0.0.1:1", "TCP: "), ("http://nowhere.invalid", "DNS: "), (secure, "TLS: ")]
            for (url, part) in failures {
                upstream[address] = url
                let absent = try await probe(upstream)
                #expect(absent["outcome"].string == "unreachable", "\(absent)")
                #expect(absent["detail"].string?.hasPrefix(part) == true, "\(absent)")
            }
        }
    }
}
