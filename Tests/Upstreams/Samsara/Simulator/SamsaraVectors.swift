/// The test vectors of the specification, byte for byte.
enum SamsaraVectors {
    static let event = #"{"timestamp":1433004485870,"sourceId":"3aw4sedrtcyvgbuhjkn","eventName":"session.started"}"#
    static let v1 = "[\(event)]"
    static let v1Gzip = hex(
        """
        1f8b08000000000000030dcc410a80201000c0bfec39c2d028fc41973e101d2c97b2d0c25d8d88fe5ef7618607d8792436fe04
        5d29298550aaaddb461440478a33761634487329421b79bef332a575db0314801903f7c6e32f0889dc11cabf8a8c16def103ef
        be35405c000000
        """)
    static let v2 =
        #"[{"timestamp":1433004485870,"sourceId":"3aw4sedrtcyvgbuhjkn","eventName":"session.started"},{"timestamp":1433004490171,"sourceId":"johndoe@gmail.com","eventName":"user.scored","location-x":104.5,"id64":9007199254740993,"name":"José 😀"}]"#
    static let v3 =
        #"[\#(event),{"timestamp":"1433004490171","sourceId":"johndoe@gmail.com","eventName":"user.scored"},{"timestamp":1433004494454,"sourceId":"johndoe@gmail.com"}]"#
    static let v3Answer =
        #"["OK","{:timestamp (not (integer? \"1433004490171\"))}","{:eventName missing-required-key}"]"#
    static let v5Gzip = hex(
        """
        1f8b08005d2f016b02ff15cb410e82301000c0af903d5bb30b4bbbe5075cfc80f150e8424cac105abc18fe2e9e2773ff827ef45d6e212974
        15ec59b7eb6b99678d70a9a03c93e612d27a1ab1f35e442c63eb4ecbcbbe8ddac77f533b21e9140d72f0864712136a42530b5a4732d8c80d
        1c8f1f10eccc086e000000
        """)
    static let v5 =
        #"[{"eventName": "user.logged", "timestamp": 1479988864057, "sourceId": "e6f01efd-04a9-4c18-a210-2806718b6d43"}]"#
    static let v5Two =
        #"[{"eventName": "user.registration", "timestamp": 1479988864057, "sourceId": "ed303d68-53a6-11e6-8e25-3f5e0ad08c59"}, {"eventName": "user.skill.gain", "timestamp": 1479988864058, "sourceId": "device-1", "name": "Jos\u00e9", "emoji": "\ud83d\ude00", "level": 10, "score": 0.1, "nested": {"a": [1, null, true]}}]"#
    static let v6 = [
        #"[{"eventName":"user.logged","timestamp":1479988864057,"sourceId":"e6f01efd","name":"José 😀 </b> a/b","score":0.1}]"#,
        #"[{"big":1e+21,"eventName":"user.logged","f":5,"name":"José 😀 \u003c/b\u003e a/b","score":0.1,"sourceId":"e6f01efd","timestamp":1479988864057}]"#,
    ]

    private static func hex(_ text: String) -> [UInt8] {
        let digits = Array(text.filter(\.isHexDigit))
        return stride(from: 0, to: digits.count, by: 2).map { UInt8(String(digits[$0...($0 + 1)]), radix: 16)! }
    }
}
