import Foundation
import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import WebhookAdapter

@Suite struct PayloadSchemaTests {
    private func errors(_ schema: String, _ payload: String) throws -> PayloadErrors {
        let schema = try PayloadSchema(Array(schema.utf8))
        return try JSONParser.ofThisThread.parse(Array(payload.utf8)) { schema.errors(of: $0) }.get()
    }

    // The schema, the payload, and the faults.
    private static let faults: [(schema: String, payload: String, faults: [String])] = [
        (#"{"type":"object"}"#, "[]", ["must be of type object"]),
        (#"{"type":["string","null"]}"#, "1", ["must be of type string or null"]),
        (#"{"type":"integer"}"#, "1.5", ["must be of type integer"]),
        (#"{"type":"boolean"}"#, "0", ["must be of type boolean"]),
        ("false", "{}", ["is not allowed here"]),
        (#"{"const":{"a":[1,"b"]}}"#, #"{"a":[1,"c"]}"#, ["must be the value that the schema allows"]),
        (#"{"enum":[1,null,[true]]}"#, "[false]", ["must be one of the values that the schema allows"]),
        (#"{"enum":[1,null,[true]]}"#, "[true,1]", ["must be one of the values that the schema allows"]),
        (
            #"{"properties":{"a/b":{"type":"string"},"c":{"properties":{"~":{"type":"null"}}}},"required":["c","d"]}"#,
            #"{"a/b":1,"c":{"~":2}}"#,
            ["/a~1b: must be of type string", "/c/~0: must be of type null", "/d: is required"]
        ),
        (
            #"{"properties":{"a":true},"additionalProperties":false}"#, #"{"a":1,"b":2}"#,
            ["/b: is not allowed here"]
        ),
        (#"{"additionalProperties":{"type":"number"}}"#, #"{"a":1,"b":"2"}"#, ["/b: must be of type number"]),
        (#"{"properties":{"é":{"type":"null"}}}"#, #"{"\u00e9":1}"#, ["/é: must be of type null"]),
        (#"{"items":{"type":"null"}}"#, "[null,1]", ["/1: must be of type null"]),
        (
            #"{"prefixItems":[{"type":"null"}],"items":{"type":"string"}}"#, #"[1,2,"3"]"#,
            ["/0: must be of type null", "/1: must be of type string"]
        ),
        (#"{"minItems":2,"maxItems":3}"#, "[1]", ["must have at least 2 elements"]),
        (#"{"minItems":2,"maxItems":3}"#, "[1,2,3,4]", ["must have at most 3 elements"]),
        (#"{"minProperties":1}"#, "{}", ["must have at least 1 members"]),
        (#"{"maxProperties":1}"#, #"{"a":1,"b":2}"#, ["must have at most 1 members"]),
        (#"{"minLength":2}"#, #""\ud83d\ude00""#, ["must have at least 2 characters"]),
        (#"{"maxLength":1}"#, #""éé""#, ["must have at most 1 characters"]),
        (#"{"minimum":0.1}"#, "0.09", ["must be at least 0.1"]), (#"{"maximum":3}"#, "1e1", ["must be at most 3"]),
        (#"{"exclusiveMinimum":3}"#, "3.0", ["must be more than 3"]),
        (#"{"exclusiveMaximum":-3}"#, "-3", ["must be less than -3"]),
        (#"{"allOf":[{"minimum":1},{"maximum":-1}]}"#, "0", ["must be at least 1", "must be at most -1"]),
        (
            #"{"anyOf":[{"type":"null"},{"minimum":2}]}"#, "1",
            ["must match at least one of the schemas in anyOf"]
        ),
        (
            #"{"oneOf":[{"minimum":1},{"minimum":2}]}"#, "3",
            ["must match exactly one of the schemas in oneOf; it matches 2"]
        ),
        (#"{"not":{"required":["a"]}}"#, #"{"a":1}"#, ["must not match the schema in not"]),
        (
            ##"{"$defs":{"tree":{"properties":{"next":{"$ref":"#/$defs/tree"}},"type":"object"}},"$ref":"#/$defs/tree"}"##,
            #"{"next":{"next":{"next":1}}}"#, ["/next/next/next: must be of type object"]
        ),
        (##"{"items":{"$ref":"#"},"type":"array"}"##, "[[[]],[1]]", ["/1/0: must be of type array"]),
    ]

    @Test(arguments: faults) func payload_isRefused_withPointers(schema: String, payload: String, faults: [String])
        throws
    {
        #expect(try errors(schema, payload).kept.map(\.description) == faults)
    }

    @Test(arguments: [
        ("true", "1"), ("{}", "[]"), (#"{"type":"integer"}"#, "1.0"), (#"{"type":"integer"}"#, "1e400"),
        (#"{"type":"number"}"#, "1"), (#"{"const":1}"#, "1.0"), (#"{"const":{"a":1,"b":2}}"#, #"{"b":2,"\u0061":1}"#),
        (
            #"{"properties":{"a":{"type":"null"}},"required":["a"],"minLength":9,"minimum":9,"minItems":9}"#,
            #"{"a":null}"#
        ),
        (#"{"required":["a"]}"#, "[]"), (#"{"minLength":1,"maxLength":1}"#, #""\ud83d\ude00""#),
        (#"{"minimum":3,"maximum":3}"#, "3"), (#"{"oneOf":[{"minimum":1},{"minimum":2}]}"#, "1"),
        (#"{"not":{"type":"null"},"anyOf":[false,true]}"#, "1"),
        (#"{"title":"t","format":"date","x-own":1,"$schema":"s","$comment":"c","default":1,"examples":[]}"#, "1"),
        (#"{"prefixItems":[true,{"type":"null"}]}"#, "[1]"),
    ])
    func payload_isAccepted(schema: String, payload: String) throws {
        #expect(try errors(schema, payload).isEmpty)
    }

    /// An unknown keyword may be the one that matters.
    @Test(arguments: [
        (#"{"type":"strin"}"#, "/type must be a type, or an array of types"),
        (#"{"properties":{"a":{"pattern":"a*"}}}"#, "/properties/a/pattern is a keyword that Postern does not check"),
        (#"{"requierd":["a"]}"#, "/requierd is a keyword that Postern does not check"),
        (#"{"required":"a"}"#, "/required must be an array of strings"),
        (#"{"items":[]}"#, "/items must be an object, true, or false"),
        (#"{"anyOf":[]}"#, "/anyOf must be an array of schemas"), (#"{"enum":1}"#, "/enum must be an array"),
        (#"{"minLength":-1}"#, "/minLength must be a whole number"), (#"{"minimum":"1"}"#, "/minimum must be a number"),
        (
            ##"{"$ref":"#/$defs/none"}"##,
            "/$ref must be # or a JSON Pointer behind it that leads to a schema of this file"
        ),
        (
            #"{"$ref":"https://a.example/b"}"#,
            "/$ref must be # or a JSON Pointer behind it that leads to a schema of this file"
        ),
        (##"{"$ref":"#"}"##, "has a reference that leads back to itself for the same value"),
        (
            ##"{"$defs":{"a":{"anyOf":[{"not":{"$ref":"#/$defs/a"}}]}},"properties":{"b":{"$ref":"#/$defs/a"}}}"##,
            "has a reference that leads back to itself for the same value"
        ),
        ("{,}", "is not JSON at line 1, column 2: unexpected character"),
    ])
    func schema_isRefused_ifItCannotBeChecked(schema: String, problem: String) {
        #expect { try PayloadSchema(Array(schema.utf8)) } throws: {
            ($0 as? PayloadSchema.Refusal)?.problems == [problem]
        }
    }

    /// Neither takes the stack of a thread. Schemas that are read from the end of the chain are not nested when they
    /// are.
    @Test(arguments: [
        (false, "/$defs/a148 is nested too deeply, through references"),
        (true, "has too many levels of references for one value"),
    ])
    func longChainOfReferences_isRefused(isReadFromItsEnd: Bool, problem: String) {
        let names = (0..<200).map { "\"a\($0)\":" + ($0 < 199 ? ##"{"$ref":"#/$defs/a\##($0 + 1)"}"## : "true") }
        let references = (0..<200).map { ##"{"$ref":"#/$defs/a\##(isReadFromItsEnd ? 199 - $0 : $0)"}"## }
        let text = #"{"$defs":{\#(names.joined(separator: ","))},"allOf":[\#(references.joined(separator: ","))]}"#
        #expect { try PayloadSchema(Array(text.utf8)) } throws: {
            ($0 as? PayloadSchema.Refusal)?.problems.first == problem
        }
    }

    @Test func largestSchema_isAccepted_andNoLargerOne() throws {
        func schema(_ count: Int) -> [UInt8] {
            Array(#"{"allOf":[\#(Array(repeating: "true", count: count).joined(separator: ","))]}"#.utf8)
        }
        _ = try PayloadSchema(schema(1999))
        #expect { try PayloadSchema(schema(2000)) } throws: {
            ($0 as? PayloadSchema.Refusal)?.problems == ["has more than 2000 schemas"]
        }
    }

    /// Every level doubles the work: 2^30 steps.
    @Test func exponentialCheck_isCutOff() throws {
        let names = (0..<30).map {
            ##""a\##($0)":{"anyOf":[{"$ref":"#/$defs/a\##($0 + 1)"},{"$ref":"#/$defs/a\##($0 + 1)"}]}"##
        }
        // Half of the levels are for one value.
        let halves = names.prefix(14) + [##""a14":{"items":{"$ref":"#/$defs/a15"},"minItems":9}"##] + names.suffix(15)
        let text = ##"{"$defs":{\##(halves.joined(separator: ",")),"a30":false},"$ref":"#/$defs/a0"}"##
        let found = try errors(text, "[[1],[1]]").kept.map(\.description)
        #expect(found == ["takes more steps to check against the schema than are allowed"])
    }

    @Test func deepPayload_doesNotTakeTheStack() throws {
        let levels =
            String(repeating: #"{"allOf":["#, count: 20) + ##"{"items":{"$ref":"#"}}"##
            + String(repeating: "]}", count: 20)
        func payload(_ depth: Int) -> String {
            String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
        }
        #expect(try errors(levels, payload(10)).isEmpty)
        #expect(try errors(levels, payload(60)).count == 1)
    }

    @Test func kindWithASchema_takesOnlyWhatMatches() throws {
        let folder = ScratchFolder()
        let file = folder.file("order.json")
        try #"{"type":"object","required":["id"]}"#.write(toFile: file, atomically: true, encoding: .utf8)
        let kinds: [String: [String: SettingValue]] = ["order": ["schema": .text(file)], "other": [:]]
        let upstream = try UpstreamFixture.webhook.make(["kinds": .objects(kinds)])
        #expect(throws: InvalidPayload([PayloadError("/id", "is required")])) {
            try UpstreamFixture.webhook.messages(of: [.init("order", "{}")], to: upstream)
        }
        #expect(
            try UpstreamFixture.webhook.messages(
                of: [.init("order", #"{"id":1}"#), .init("other", "{}")], to: upstream
            ).count == 2)
        try #"{"minimum":"a"}"#.write(toFile: file, atomically: true, encoding: .utf8)
        let problem = "the schema \(file) of 'order': /minimum must be a number"
        #expect(throws: Setting.Problems([("kinds", problem)])) {
            try UpstreamFixture.webhook.make(["kinds": .objects(kinds)])
        }
        let none = "the schema /dev/zero of 'order': cannot be read: expected a file of at most 1048576 bytes"
        #expect(throws: Setting.Problems([("kinds", none)])) {
            try UpstreamFixture.webhook.make(["kinds": .objects(["order": ["schema": "/dev/zero"]])])
        }
    }
}
