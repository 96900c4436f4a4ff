import ArgumentParser
import PosternCommands
import PosternCore
import PosternGateway
import PosternProcess
import PosternUpstream

struct Keys: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Creates API keys, and rotates the key that encrypts stored credentials.",
        subcommands: [KeysNew.self, KeysRotateEncryption.self])
}

struct KeysRotateEncryption: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "rotate-encryption",
        abstract: "Encrypts the stored credentials with the current outbox.encryptionKey.",
        discussion: """
            Put the new key into outbox.encryptionKey and the old one into outbox.previousEncryptionKeys first. Only \
            while no gateway runs on the store; a gateway that starts with such a configuration does the same.
            """)

    @Option(help: ArgumentHelp("The gateway's configuration, which names the store and the keys.", valueName: "file"))
    var config: String

    @Flag(help: "Write one JSON object, for programs.")
    var json = false

    func run() throws {
        let result = try reporting { () throws(CommandFailure) in
            try KeyRotation.run(ConfigurationLoader(file: config))
        }
        try writeResult(json ? KeyRotation.json(result) : KeyRotation.text(result))
    }
}

struct KeysNew: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "new",
        abstract: "Prints a new key, only this once, and its entry for the configuration.",
        discussion: "The key is not stored: the configuration contains only its SHA-256.")

    @Option(help: ArgumentHelp("The name of the key in the log and in the configuration.", valueName: "name"))
    var name: String

    @Option(
        help: ArgumentHelp("The scopes of the key: write, read, admin, joined by commas.", valueName: "scopes"),
        transform: { text in
            try text.split(separator: ",", omittingEmptySubsequences: false).map { word in
                guard let scope = NewKey.Scope(rawValue: String(word)) else {
                    throw ValidationError("\(word) is not a scope; the scopes are write, read, and admin.")
                }
                return scope
            }
        })
    var scopes: [NewKey.Scope]

    @Flag(help: "Write one JSON object, for programs.")
    var json = false

    func validate() throws {
        guard !name.isEmpty else { throw ValidationError("The name of a key cannot be empty.") }
        guard Set(scopes).count == scopes.count else { throw ValidationError("A scope is named twice.") }
    }

    func run() throws {
        let key = NewKey(name: name, scopes: scopes)
        try writeResult(json ? key.json : key.text)
    }
}
