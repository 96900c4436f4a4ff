import PosternCore
import PosternUpstream
import Testing

@testable import PosternStore

@Suite struct VaultTests {
    private static let key = [UInt8](repeating: 7, count: 32)
    private static let other = [UInt8](repeating: 8, count: 32)
    private static let token = Array("canary-token".utf8)
    private static let credentialKey = Vault.CredentialKey(
        upstream: UpstreamNumber(rawValue: 3), owner: "u1", version: 12)

    private func sealed(_ vault: Vault, at credentialKey: Vault.CredentialKey = credentialKey) throws -> Vault.Sealed {
        try #require(try vault.put(Self.token, at: credentialKey))
    }

    @Test func sealedValue_opens_andShowsNothing() throws {
        let vault = Vault(EncryptionKeys(current: Self.key))
        let sealed = try sealed(vault)
        #expect(vault.value(sealed, at: Self.credentialKey) == Self.token)
        #expect(sealed.nonce.count == 12)
        #expect(sealed.box.count == Self.token.count + 16)
    }

    @Test func nonce_isAnotherEachTime() throws {
        let vault = Vault(EncryptionKeys(current: Self.key))
        #expect(Set(try (0..<100).map { _ in try sealed(vault).nonce }).count == 100)
    }

    @Test func sealedValue_doesNotOpen_whenAnyBitOfItWasChanged() throws {
        let vault = Vault(EncryptionKeys(current: Self.key))
        let sealed = try sealed(vault)
        for bit in 0..<8 * sealed.box.count {
            var box = sealed.box
            box[bit / 8] ^= 1 << UInt8(bit % 8)
            #expect(
                vault.value(.init(keyID: sealed.keyID, nonce: sealed.nonce, box: box), at: Self.credentialKey) == nil)
        }
        var nonce = sealed.nonce
        nonce[0] ^= 1
        #expect(vault.value(.init(keyID: sealed.keyID, nonce: nonce, box: sealed.box), at: Self.credentialKey) == nil)
        let shapes = [([UInt8](), sealed.box), (sealed.nonce, []), (sealed.nonce, Array(sealed.box.prefix(15)))]
        for (nonce, box) in shapes {
            #expect(vault.value(.init(keyID: sealed.keyID, nonce: nonce, box: box), at: Self.credentialKey) == nil)
        }
    }

    @Test(arguments: [
        Vault.CredentialKey(upstream: UpstreamNumber(rawValue: 4), owner: "u1", version: 12),
        Vault.CredentialKey(upstream: UpstreamNumber(rawValue: 3), owner: "u2", version: 12),
        Vault.CredentialKey(upstream: UpstreamNumber(rawValue: 3), owner: "u1", version: 13),
    ])
    func sealedValue_doesNotOpen_inAnotherPlace(credentialKey: Vault.CredentialKey) throws {
        let vault = Vault(EncryptionKeys(current: Self.key))
        #expect(vault.value(try sealed(vault), at: credentialKey) == nil)
    }

    @Test func sealedValue_opensWithItsKeyAlone_beItAFormerOne() throws {
        let sealed = try sealed(Vault(EncryptionKeys(current: Self.key)))
        #expect(Vault(EncryptionKeys(current: Self.other)).value(sealed, at: Self.credentialKey) == nil)
        #expect(Vault(EncryptionKeys()).value(sealed, at: Self.credentialKey) == nil)
        let rotated = Vault(EncryptionKeys(current: Self.other, previous: [Self.key]))
        #expect(rotated.value(sealed, at: Self.credentialKey) == Self.token)
        // Another key under the id of the right one.
        let wrong = Vault.Sealed(
            keyID: try #require(Vault(EncryptionKeys(current: Self.other)).currentKeyID), nonce: sealed.nonce,
            box: sealed.box)
        #expect(rotated.value(wrong, at: Self.credentialKey) == nil)
    }

    @Test func value_isNotStored_withoutAKey() throws {
        #expect(try Vault(EncryptionKeys()).put(Self.token, at: Self.credentialKey) == nil)
    }

    @Test func keys_showNothing_whenPrinted() {
        let keys = EncryptionKeys(current: Self.key, previous: [Self.other])
        var dumped = ""
        dump(keys, to: &dumped)
        for text in ["\(keys)", String(reflecting: keys), dumped, "\(Optional(keys) as Any)"] {
            #expect(!text.contains("7, 7") && !text.contains("8, 8"))
        }
        #expect("\(keys)" == "2 keys")
    }

    @Test func credential_showsNoValue_whenPrinted() {
        let credential = Credential(owner: "u1", value: Self.token)
        let held = HeldCredential(value: Self.token, version: 4)
        let change = StateChange.hold(credential)
        for value in [credential, held, change] as [Any] {
            var dumped = ""
            dump(value, to: &dumped)
            for text in ["\(value)", String(reflecting: value), dumped] {
                #expect(!text.contains("99, 97, 110"), "\(text)")
                #expect(!text.contains("canary"))
            }
        }
    }
}
