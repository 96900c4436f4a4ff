import Foundation
import PosternTestKit
import Testing

extension EndToEnd {
    /// What SDKs report is answered once it is on disk, whether their platform is there or not.
    @Suite(.serialized, .enabled(if: Timing.isMeasured)) struct SDKTiming {
        private struct Call {
            var method = "POST"
            let path: String
            let body: String
            var headers: [(String, String)] = []
        }

        private static let json = ("Content-Type", "application/json")
        private static let form = ("Content-Type", "application/x-www-form-urlencoded")
        private static let nowhere = "http://127.0.0.1:9"

        private static var upstreams: [String: [String: Any]] {
            [
                "samsara": ["url": nowhere, "sdk": ["enabled": true, "anonymous": true]],
                "seer": [
                    "baseURL": nowhere, "clientId": "simulated-client", "clientSecret": "simulated-secret",
                    "sdk": ["enabled": true],
                ],
                "curio": ["serverURL": nowhere, "apiKey": "key", "trackingCode": "GW7DEM01", "sdk": ["enabled": true]],
                "appservices": [
                    "baseURL": nowhere, "organization": "acme", "application": "campus", "apiKey": "KEY",
                    "monitoring": ["enabled": true], "sdk": ["enabled": true, "waitSeconds": 0],
                ],
                "streamone": [
                    "apiUrl": nowhere, "id": "9yC-4pQxT_2a", "psk": "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu",
                    "sdk": ["enabled": true, "queueActions": ["item/edit"]],
                ],
            ]
        }

        /// What an app reports: one round of it, with every call that is stored.
        private static func calls(of type: String, _ round: Int, token: String) -> [Call] {
            switch type {
            case "samsara": [Call(path: "v1/events", body: events(0..<10), headers: [json])]
            case "seer":
                [
                    (
                        "sactivity",
                        #"{"actor":{"id":"a"},"verb":"v","object":{"id":"o","objectType":"t"},"generator":{"appId":"g"}}"#
                    ),
                    (
                        "tincan",
                        #"{"actor":{"mbox":"mailto:a@example.org"},"verb":{"id":"http://example.org/v"},"object":{"id":"http://example.org/\#(round)"}}"#
                    ),
                ].map { Call(path: $0, body: $1, headers: [("Authorization", "Bearer \(token)"), json]) }
            case "curio": curio(round)
            case "appservices": appServices(round)
            default:
                [
                    Call(
                        path: EndToEnd.StreamOne.sdkTarget("item/edit", "seq=\(round)").replacing(
                            "/sdk/streamone/", with: ""),
                        body: "seq=\(round)", headers: [form])
                ]
            }
        }

        private static func curio(_ round: Int) -> [Call] {
            let session = "6d551000-a21d-11e4-8123-" + String(String(round + 0x1000_0000_0000, radix: 16).suffix(12))
            let app =
                "visitorCode=visitor-\(round)&sessionCode=\(session)&sessionTimeout=30&trackingCode=GW7DEM01"
            let device =
                "apiKey=key&screenWidth=750&screenHeight=1334&lang=tr-TR&simOperator=&simOpCountry=&networkOpName=&connType=wifi&brand=Apple&model=iPhone&osType=iOS&osVer=9&curioSdkVer=1.2.4&appVer=2"
            let records =
                #"[{"type":2,"pageTitle":"b","path":"p","timestamp":1500000000000}]"#
                .addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
            return [
                ("visit/create", device), ("hit/create", "pageTitle=t&path=p"), ("hit/end", "pageTitle=&path="),
                ("event/create", "eventKey=k&eventValue=v"), ("batch/create", "data=\(records)"), ("visit/end", ""),
            ].map { Call(path: $0, body: "\(app)&\($1)", headers: [form]) }
        }

        private static func appServices(_ round: Int) -> [Call] {
            let device = "c0ffee11-2233-4455-8677-" + String(String(round + 0x1000_0000_0000, radix: 16).suffix(12))
            let user = "user-\(round)"
            let steps = [
                (
                    "PUT", "device/\(device)",
                    #"{"type":"device","apple.notifier.id":"\#(String(repeating: "a", count: 64))"}"#
                ),
                ("POST", "users", #"{"username":"\#(user)"}"#), ("POST", "users/\(user)/devices/\(device)", ""),
                ("PUT", "device/\(device)", #"{"mobileplatform":{"preferences":{"whitelist":{},"blacklist":{}}}}"#),
                ("POST", "groups", #"{"path":"all","title":"all"}"#), ("POST", "groups/all/users/\(user)", ""),
                ("DELETE", "groups/all/users/\(user)", ""), ("DELETE", "users/\(user)/devices/\(device)", ""),
                ("PUT", "device/\(device)", #"{"type":"device","apple.notifier.id":""}"#),
            ]
            let headers = [json, ("Authorization", "Bearer PiTok-\(user)"), ("X-Auth-Provider", "pi")]
            return steps.map {
                Call(method: $0, path: "acme/campus/\($1)?api_key=KEY", body: $2, headers: headers)
            } + [
                Call(
                    path: "acme/campus/apm/apmMetrics",
                    body: #"{"sessionMetrics":{"sessionId":"\#(round)"},"logs":[]}"#, headers: [json])
            ]
        }

        /// 99 % of the calls within 100 ms.
        @Test(.timeLimit(.minutes(10)), arguments: upstreams.keys.sorted())
        func storedCall_isAnsweredSoon_whileItsPlatformIsAway(type: String) async throws {
            var settings = Settings()
            settings.upstreams = [type: try #require(Self.upstreams[type])]
            let gateway = try await GatewayDirectory(settings).start()
            let client = try gateway.client()
            let token =
                type == "seer"
                ? try client.post(
                    "/sdk/seer/oauth/access_token", "grant_type=client_credentials",
                    headers: [
                        (
                            "Authorization",
                            "Basic " + Data("simulated-client:simulated-secret".utf8).base64EncodedString()
                        ),
                        Self.form,
                    ]
                ).json["access_token"].string ?? "" : ""
            var times: [Duration] = []
            var calls = Self.calls(of: type, 0, token: token)
            for round in 1...max(30, 300 / calls.count) {
                for call in calls {
                    let start = ContinuousClock.now
                    let answer = try client.ask(
                        call.method, "/sdk/\(type)/\(call.path)", Array(call.body.utf8), headers: call.headers)
                    times.append(ContinuousClock.now - start)
                    #expect((200...202).contains(answer.status), "\(call.path): \(answer.status) \(answer.text)")
                }
                calls = Self.calls(of: type, round, token: token)
            }
            let (slowest, limit) = (times.sorted()[times.count * 99 / 100], .milliseconds(100) * Timing.slowness())
            #expect(slowest < limit, "\(type): 99 % of \(times.count) calls within \(slowest)")
            print("\(type): 99 % of \(times.count) calls within \(slowest)")
            try await gateway.stop()
        }
    }
}
