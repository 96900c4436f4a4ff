import PosternSimulatorKit

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
