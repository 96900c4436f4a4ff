import Foundation
import PosternTestKit

/// The names of the tests, which pages give as evidence.
enum TestNames {
    /// The names of all functions in the sources of the tests.
    static func all() throws -> Set<String> {
        var names: Set<String> = []
        for file in try Page.files(where: { $0.hasPrefix("Tests/") && $0.hasSuffix(".swift") }) {
            let text = String(decoding: try Fixture.bytes(inPackage: file), as: UTF8.self)
            for part in text.components(separatedBy: "func ").dropFirst() {
                let name = part.prefix { $0.isLetter || $0.isNumber || $0 == "_" }
                if part.dropFirst(name.count).first == "(" { names.insert(String(name)) }
            }
        }
        return names
    }
}
