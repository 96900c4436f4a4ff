import Testing

@testable import StreamOneAdapter

/// The vectors of the specification's section 4.1: what is signed, and its signature.
enum StreamOneVectors {
    static let user = StreamOneActor(kind: .user, id: "Cmv8fnKfjF2l")
    static let application = StreamOneActor(kind: .application, id: "9yC-4pQxT_2a")
    private static let account = "A4pMV-sKDVEy"
    static let session = (id: "Hz1kPspd2Bk1", key: "SQKEyak6R2BcwH3qnTakY50SKeABxXcg")

    static func psk(of actor: StreamOneActor) -> String {
        actor.kind == .user ? "abcdefghijklmnopqrstuvwxyzABCDEF" : "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu"
    }

    struct Signed: Sendable, CustomTestStringConvertible {
        let name: String
        let path: String
        let parameters: String
        let body: String
        let signature: String
        var text: String { "\(path)?\(parameters)&\(body)" }
        var testDescription: String { name }
    }

    /// P1 to P10, made by PHP at 1450000000: who signs, the call as it is queued, and what goes over the wire.
    struct Vector: CustomTestStringConvertible, Sendable {
        let actor: StreamOneActor
        var account: String?
        var isInSession = false
        let call: String
        let signed: Signed
        var testDescription: String { signed.name }
        var key: String { psk(of: actor) + (isInSession ? session.key : "") }
    }

    static let php = [
        Vector(
            actor: user, call: #"{"command":"api","action":"info"}"#,
            signed: Signed(
                name: "P1", path: "/api/api/info",
                parameters:
                    "api=3&format=json&authentication_type=user&timestamp=1450000000&user=Cmv8fnKfjF2l",
                body: "",
                signature: "ba6585e0ef67fb39acb2de0c43b4345db860bcf4")),
        Vector(
            actor: user,
            call: #"{"command":"item","action":"view","arguments":{"itemtype":"video","archived":false}}"#,
            signed: Signed(
                name: "P2", path: "/api/item/view",
                parameters:
                    "api=3&format=json&authentication_type=user&timestamp=1450000000&user=Cmv8fnKfjF2l",
                body: "itemtype=video&archived=0",
                signature: "7465bf82083d7ada4c9511dd02bb02b67d493ac3")),
        Vector(
            actor: user, account: account,
            call:
                #"{"command":"item","action":"edit","arguments":{"item":"vMD_9k1SmkS5","title":"Caf\u00e9 & thé: 50% (a/b)~*!","keywords":["news","a b","x+y"],"description":null}}"#,
            signed: Signed(
                name: "P3", path: "/api/item/edit",
                parameters:
                    "api=3&format=json&account=A4pMV-sKDVEy&authentication_type=user&timestamp=1450000000&user=Cmv8fnKfjF2l",
                body:
                    "item=vMD_9k1SmkS5&title=Caf%C3%A9+%26+th%C3%A9%3A+50%25+%28a%2Fb%29%7E%2A%21&keywords=news%2Ca+b%2Cx%2By&description=",
                signature: "10b9e798d792a33519a00c9fa38c383edd335e5b")),
        Vector(
            actor: application,
            call:
                #"{"command":"item","action":"view","timezone":"Europe/Amsterdam","accounts":["A4pMV-sKDVEy","kYxEV4oaRQg2"],"arguments":{"limit":25,"offset":0}}"#,
            signed: Signed(
                name: "P4", path: "/api/item/view",
                parameters:
                    "api=3&format=json&authentication_type=application&timezone=Europe%2FAmsterdam&account=A4pMV-sKDVEy%2CkYxEV4oaRQg2&timestamp=1450000000&application=9yC-4pQxT_2a",
                body: "limit=25&offset=0",
                signature: "e1b0f26e7cdff07a51488310b1ea7c2cc677dff3")),
        Vector(
            actor: application, account: account,
            call: #"{"command":"account","action":"view","customer":"CuSt-0m_eR12"}"#,
            signed: Signed(
                name: "P5", path: "/api/account/view",
                parameters:
                    "api=3&format=json&authentication_type=application&customer=CuSt-0m_eR12&timestamp=1450000000&application=9yC-4pQxT_2a",
                body: "",
                signature: "516d405beb594fc03bc55e1b76d4ee5646a77acf")),
        Vector(
            actor: application,
            call:
                #"{"command":"session","action":"initialize","arguments":{"user":"jan@example.nl","userip":"10.11.12.13"}}"#,
            signed: Signed(
                name: "P6", path: "/api/session/initialize",
                parameters:
                    "api=3&format=json&authentication_type=application&timestamp=1450000000&application=9yC-4pQxT_2a",
                body: "user=jan%40example.nl&userip=10.11.12.13",
                signature: "736070acaf850f7be9a437882c162704dd1a89b9")),
        Vector(
            actor: application,
            call:
                #"{"command":"session","action":"create","arguments":{"challenge":"EwBdQcB5yq8sU05u4aADv6Abg3oBVhtp","response":"RgFOFwNQQAVeXFtbElkfQRVLVVZUBwtdV1YDWkQoDUsYRC4PDAASUyt+PRoVW2ADYV5hDA4rF1hcUFUU","v2hash":"5f4dcc3b5aa765d61d8327deb882cf99"}}"#,
            signed: Signed(
                name: "P7", path: "/api/session/create",
                parameters:
                    "api=3&format=json&authentication_type=application&timestamp=1450000000&application=9yC-4pQxT_2a",
                body:
                    "challenge=EwBdQcB5yq8sU05u4aADv6Abg3oBVhtp&response=RgFOFwNQQAVeXFtbElkfQRVLVVZUBwtdV1YDWkQoDUsYRC4PDAASUyt%2BPRoVW2ADYV5hDA4rF1hcUFUU&v2hash=5f4dcc3b5aa765d61d8327deb882cf99",
                signature: "98b739318f90b3c49ac37a93102c0ecdd4a19345")),
        Vector(
            actor: application, account: account, isInSession: true,
            call: #"{"command":"item","action":"view","arguments":{"itemtype":"video"}}"#,
            signed: Signed(
                name: "P8", path: "/api/item/view",
                parameters:
                    "api=3&format=json&account=A4pMV-sKDVEy&authentication_type=application&timestamp=1450000000&application=9yC-4pQxT_2a&session=Hz1kPspd2Bk1",
                body: "itemtype=video",
                signature: "54eda8dd22660925c196570a1f00da410282bcad")),
        Vector(
            actor: application, account: account, isInSession: true,
            call: #"{"command":"session","action":"delete"}"#,
            signed: Signed(
                name: "P9", path: "/api/session/delete",
                parameters:
                    "api=3&format=json&account=A4pMV-sKDVEy&authentication_type=application&timestamp=1450000000&application=9yC-4pQxT_2a&session=Hz1kPspd2Bk1",
                body: "",
                signature: "66e50965ad47ce5e0e52135edb2e9c2dc4a375a3")),
        Vector(
            actor: application,
            call: #"{"command":"application","action":"view","arguments":{"application":"9yC-4pQxT_2a","limit":3}}"#,
            signed: Signed(
                name: "P10", path: "/api/application/view",
                parameters:
                    "api=3&format=json&authentication_type=application&timestamp=1450000000&application=9yC-4pQxT_2a",
                body: "application=9yC-4pQxT_2a&limit=3",
                signature: "47fc5f27128a57af54f991100546c7f4f7114303")),
    ]

    /// I1 to I8, of the SDK for iOS: parameters sorted; the user `user` with the key `psk`, the application `application`
    /// with `apppsk`.
    static let ios = [
        Signed(
            name: "I1", path: "/api/item/view",
            parameters: "api=3&authentication_type=user&format=json&timestamp=1234&user=user", body: "",
            signature: "a3a030d15fd3faef49fd1340cb474113645628dc"),
        Signed(
            name: "I2", path: "/api/item/view",
            parameters: "api=3&authentication_type=user&format=json&timestamp=5678&user=user", body: "",
            signature: "6e553a65157cadab99a32b9a893e4b87c3c6de4d"),
        Signed(
            name: "I3", path: "/api/item/view",
            parameters: "api=3&application=application&authentication_type=application&format=json&timestamp=1234",
            body: "",
            signature: "588b4aaa105678d5de14b9f87e431c9cc7fe458c"),
        Signed(
            name: "I4", path: "/api/user/create",
            parameters: "api=3&authentication_type=user&format=json&timestamp=1234&user=user", body: "",
            signature: "965e9d965aeda81d3aa9a3e0eda4793b0b3412c7"),
        Signed(
            name: "I5", path: "/api/item/view",
            parameters: "api=3&authentication_type=user&format=json&timestamp=1234&user=user", body: "x=ABxu233",
            signature: "02b3c66918d4d1cce6f1558ee2470c341dfe40db"),
        Signed(
            name: "I6", path: "/api/item/view",
            parameters:
                "account=account1%2Caccount2&api=3&authentication_type=user&format=json&timestamp=1234&user=user",
            body: "",
            signature: "a35a4d37e8102113ac34ba1986d34370d59737a1"),
        Signed(
            name: "I7", path: "/api/item/view",
            parameters: "api=3&authentication_type=user&customer=customer1&format=json&timestamp=1234&user=user",
            body: "",
            signature: "741337e9c6811836762d9116b76b56849e11791c"),
        Signed(
            name: "I8", path: "/api/item/view",
            parameters: "api=3&authentication_type=user&format=json&timestamp=1234&user=user",
            body: "archived=0&searchtitle=test",
            signature: "a9bd2d16054ea481b2004627ee3d6748b8fe3d88"),
    ]
}
