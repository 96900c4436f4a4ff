import Crypto
import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import SeerSimulator

private typealias V = SeerVectors

/// The examples of the specification, and its table "Validation".
@Suite struct SeerVectorTests {
    private let client = SeerClient()

    @Test(arguments: singles) func single_ofTheExamples_isTaken(path: String, item: String, bytes: Int) {
        client.control(#"{"customPaths":["/customendpoint"]}"#)
        #expect(item.utf8.count == bytes)
        let judged = client.report(path, item, token: client.token())
        #expect(judged.answer == Answer.accepted)
        #expect(judged.texts == [item])
        #expect(judged.items.orderKey == path)
        #expect(judged.violations.isEmpty)
    }

    @Test(arguments: batches) func batch_ofTheVectors_isTaken(
        items: [String], path: String, bytes: Int, digest: String
    ) {
        let body = V.batch(items)
        #expect(body.utf8.count == bytes)
        #expect(SHA256.hash(data: Array(body.utf8)).hexadecimal == digest)
        let judged = client.report(path, body, token: client.token())
        #expect(judged.answer == Answer.accepted)
        #expect(judged.texts == items)
        #expect(judged.items.orderKey == "/" + path.split(separator: "/")[0])
        #expect(judged.violations.isEmpty)
    }

    @Test(arguments: validation) func payload_isTaken_ifItKeepsTheRules(
        path: String, payload: String, complaints: [String]
    ) {
        client.control(#"{"customPaths":["customendpoint"]}"#)
        let token = client.token()
        let judged = client.report(path, payload, token: token)
        #expect(judged.answer?.status == (complaints.isEmpty ? 200 : 400))
        #expect(judged.violations == (complaints.isEmpty ? [] : ["an item the rules refuse"]))
        #expect(judged.json["items"][0]["pointers"].strings == complaints)
        #expect(judged.texts == (complaints.isEmpty ? [payload] : []))
        guard path == "/tincan" || path == "/sactivity" else { return }
        let good = path == "/tincan" ? V.t1 : V.a1
        let batch = client.report(path + "/batch", V.batch([good, payload]), token: token)
        #expect(batch.answer?.status == (complaints.isEmpty ? 200 : 400))
        if !complaints.isEmpty { #expect(batch.json["items"][0]["index"].int == 1) }
        #expect(batch.texts == (complaints.isEmpty ? [good, payload] : []))
    }

    private static let batches: [(items: [String], path: String, bytes: Int, digest: String)] = [
        ([V.a1], "/sactivity/batch", 208, "c1e9e43e7a0e0a18b2bb905936eb6f23d1a3f9d79f812e73d2ec48c6b1ff2d26"),
        ([V.a1, V.a2], "/sactivity/batch", 349, "4360b17ad4dcc6e0774419e1c0ae3d11211dd630a2569fd9fce51cc91cf430a6"),
        ([V.t1], "/tincan/batch", 327, "26211b0bf75e6f99dfdf477ea049a8247688c4243b835c9c29cda20cbdb760d2"),
        ([V.t1, V.t1], "/tincan/batch", 638, "1166fa98265f99666698a2fc27d1202de621a5c05d028957930a52e09693e66c"),
    ]

    private static let singles: [(path: String, item: String, bytes: Int)] = [
        ("/sactivity", V.a1, 191), ("/sinstrumentation", V.i1, 132), ("/tincan", V.t1, 310),
        ("/customendpoint", #"{"any":[1,2]}"#, 13),
    ]

    /// The table "Validation": path, payload, and the violation, which is empty if the payload is accepted.
    private static let validation = activities + statements + noObjects

    private typealias Payload = (path: String, payload: String, complaints: [String])

    private static let activities: [Payload] = [
        ("/sactivity", activity(), []),
        ("/sactivity", activity(adding: #","context":{}"#), []),
        ("/sactivity", activity(adding: #","target":7,"published":null,"x":[null]"#), []),
        ("/sactivity", activity(adding: #","context":"x""#), ["/context"]),
        ("/sactivity", activity(adding: #","context":null"#), ["/context"]),
        ("/sactivity", activity(verb: #"{"id":"v"}"#), ["/verb"]),
        ("/sactivity", activity(verb: #""""#), ["/verb"]),
        ("/sactivity", activity(verb: "true"), ["/verb"]),
        ("/sactivity", activity(object: #"{"id":"o"}"#), ["/object/objectType"]),
        ("/sactivity", activity(object: #""o""#), ["/object", "/object/id", "/object/objectType"]),
        ("/sactivity", activity(generator: #"{"appId":7}"#), ["/generator/appId"]),
        ("/sactivity", activity(actor: "{}"), ["/actor/id"]),
        ("/sactivity", activity(actor: "null"), ["/actor", "/actor/id"]),
        ("/sinstrumentation", activity(), []),
        (
            "/sinstrumentation", #"{"actor":{"id":" "},"verb":"v","object":{"id":"o","objectType":"t"}}"#,
            ["/generator", "/generator/appId"]
        ),
    ]

    private static let statements: [Payload] = [
        ("/tincan", V.t1, []),
        ("/tincan", statement(actor: #"{"mbox":"","account":{"name":"n"}}"#), []),
        ("/tincan", statement(actor: #"{"mbox_sha1sum":"x"}"#), []),
        ("/tincan", statement(actor: #"{"openid":"x","mbox":7}"#), []),
        ("/tincan", statement(actor: #"{"name":"n"}"#), ["/actor"]),
        ("/tincan", statement(actor: #"{"mbox":""}"#), ["/actor"]),
        ("/tincan", statement(actor: #"{"account":{ }}"#), ["/actor"]),
        ("/tincan", statement(actor: #"{"account":"a"}"#), ["/actor"]),
        ("/tincan", statement(actor: #"{"mbox":null}"#), ["/actor"]),
        ("/tincan", statement(verb: #""interacted""#), ["/verb/id"]),
        ("/tincan", statement(object: #"{"id":"o","definition":{}}"#), ["/object/definition/type"]),
        ("/tincan", statement(object: #"{"id":"o"}"#), ["/object/definition/type"]),
        ("/tincan", statement(object: #"{"id":"o","definition":{"name":"n"}}"#), ["/object/definition/type"]),
        ("/tincan", statement(object: #""o""#), ["/object/id", "/object/definition/type"]),
        ("/tincan", statement(context: nil), ["/context", "/context/extensions/appId"]),
        ("/tincan", statement(context: #"{"extensions":{}}"#), ["/context/extensions/appId"]),
        ("/tincan", statement(context: #"{"extensions":{"appId":12}}"#), ["/context/extensions/appId"]),
        ("/tincan", statement(context: #""c""#), ["/context", "/context/extensions/appId"]),
    ]

    private static let noObjects: [Payload] = ["/sactivity", "/sinstrumentation", "/tincan", "/customendpoint"]
        .flatMap { path -> [Payload] in ["[\(V.a1)]", #""text""#, "17", "null"].map { (path, $0, [""]) } }

    private static func activity(
        actor: String = #"{"id":" "}"#, verb: String = #""v""#, object: String = #"{"id":"o","objectType":"t"}"#,
        generator: String = #"{"appId":"g"}"#, adding: String = ""
    ) -> String {
        #"{"actor":\#(actor),"verb":\#(verb),"object":\#(object),"generator":\#(generator)\#(adding)}"#
    }

    private static func statement(
        actor: String = #"{"mbox":"m"}"#, verb: String = #"{"id":"v"}"#,
        object: String = #"{"id":"o","definition":{"type":"t"}}"#,
        context: String? = #"{"extensions":{"appId":"a"}}"#
    ) -> String {
        let context = context.map { #","context":\#($0)"# } ?? ""
        return #"{"actor":\#(actor),"verb":\#(verb),"object":\#(object)\#(context)}"#
    }
}

/// The examples and test vectors of the specification, byte for byte.
enum SeerVectors {
    static let a1 =
        #"{"actor":{"id":"pearsonappuser@gmail.com"},"verb":"action","object":{"id":"objectId","objectType":"objectType"},"generator":{"appId":"Seer-ios-sample-app"},"published":"2015-03-12T22:41:24Z"}"#
    static let a2 =
        #"{"actor":{"id":"zoë"},"verb":"post","object":{"id":"o-1","objectType":"photo","displayName":"Martin's 🚀"},"generator":{"appId":"app-1"}}"#
    static let i1 =
        #"{"actor":{"id":"device-7"},"verb":"heartbeat","object":{"id":"cache-42","objectType":"cache-service"},"generator":{"appId":"ccsoc"}}"#
    static let t1 =
        #"{"actor":{"mbox":"mailto:sally@example.com"},"verb":{"id":"http://adlnet.gov/expapi/verbs/interacted"},"object":{"id":"http://pearson.com/ccsoc/interactive/","definition":{"type":"http://pearson.com/ccsoc/interactivetype/"}},"result":{"score":{"scaled":0.95}},"context":{"extensions":{"appId":"SEER-ios-sdk"}}}"#

    /// Id `gw-client`, secret `gw:secret/1`.
    static let basic = "Basic Z3ctY2xpZW50Omd3OnNlY3JldC8x"

    static func batch(_ items: [String]) -> String { #"{"activities":[\#(items.joined(separator: ","))]}"# }
}
