import Testing

@testable import StreamOneClient

/// The specification's 5.1.
@Suite struct StreamOnePasswordTests {
    @Test(arguments: [
        (
            "password", "$2y$12$gmdjitkypwyd4d1mkeefiv", "EwBdQcB5yq8sU05u4aADv6Abg3oBVhtp",
            "RgFOFwNQQAVeXFtbElkfQRVLVVZUBwtdV1YDWkQoDUsYRC4PDAASUyt+PRoVW2ADYV5hDA4rF1hcUFUU"
        ),
        (
            "test123", "$2y$12$gmdjitkypwyd4d1mkeefiv", "EwBdQcB5yq8sU05u4aADv6Abg3oBVhtp",
            "FFdBFAFXHQJcUFMPRg9AFEJAUlJdV1RaUVdXXxZWeiA3CAF5TmAwCXA+XSsGGQ1nBw5FYEFFFnRAGXxA"
        ),
        (
            "password", "$2y$12$euslxtglafeu6zf1zfuvcu", "e7Z1Q6dRbHB86HZwdjiF45dI7d8gxNVB",
            "QlBBEwUGRQFCSg1IEVVdBQIHFFBIUgZNUkYVVxcBVEIPDgB8LzZ5QhM6KgZ7RgpxDHsGUzJ4El4cAX8q"
        ),
        (
            "password", "$2y$12$baztaaydu13s4ah6y6pegt", "coRUuWCVY3pqiEt69i9IaU8d9E0Q4zz6",
            "HQtJEAcGEwAASEJTUx0GRQYKRAACUQ8YD0BdXlVZVC90TBwgdhBlLm9RA1R5N0AFW25wUVMNHHpeY1QD"
        ),
    ])
    func response_isTheSDKs(password: String, salt: String, challenge: String, response: String) {
        #expect(Password.response(to: challenge, password: password, salt: salt) == response)
    }

    @Test(arguments: [
        ("password", "5f4dcc3b5aa765d61d8327deb882cf99"), ("test123", "cc03e747a6afbbcbf8be7668acfebee5"),
        ("thisisalongpassword", "6aab4ab53c466fd08635837b9a8f61ff"),
    ])
    func oldHash_isTheMD5(password: String, hash: String) {
        #expect(Password.oldHash(of: password) == hash)
    }

    @Test func newHash_isWhatThePlatformKeeps() {
        #expect(
            Password.newHash(of: "password", salt: "$2y$12$gmdjitkypwyd4d1mkeefiv")
                == "4de314adce7b776266d55663fcff376415f776a3623bf0f28d693b5f706061cf")
    }

    @Test(arguments: [
        "", "x", "$1$abc", "$2y$12$short", "$2x$12$gmdjitkypwyd4d1mkeefiv", "$2y$1x$gmdjitkypwyd4d1mkeefiv",
        "$2y$12$gmdjitkypwyd4d1mkeef!v", "$2y$12$gmdjitkypwyd4d1mkeefivX", "$2y$12xgmdjitkypwyd4d1mkeefiv",
        // It would take hours.
        "$2y$31$gmdjitkypwyd4d1mkeefiv", "$2y$03$gmdjitkypwyd4d1mkeefiv", "*0",
    ])
    func badSalt_endsTheLogin(salt: String) {
        #expect(Password.response(to: "c", password: "p", salt: salt) == nil)
        #expect(Password.newHash(of: "p", salt: salt) == nil)
    }

    @Test(arguments: ["$2a$04$", "$2b$04$", "$2y$05$"])
    func otherForms_areSalts(prefix: String) throws {
        let response = Password.response(to: "c", password: "p", salt: prefix + "abcdefghijklmnopqrstu.")
        #expect(try #require(response).utf8.count == 80)
    }
}
