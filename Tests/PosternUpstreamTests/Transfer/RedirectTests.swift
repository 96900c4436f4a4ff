import PosternCore
import PosternUpstream
import Testing

@Suite struct RedirectTests {
    @Test(arguments: [
        ("https://h.example/hook/", "https://h.example/hook/"), ("HTTP://h:8080", "http://h:8080"),
        ("https://user:pw@h.example/a?sig=1#x", "https://h.example/a"), ("/login?next=1", "/login"), ("/a#b", "/a"),
        ("//u@h/a", "//h/a"), ("https://a@b@h/p@q", "https://h/p@q"), ("https://h?u:p@x", "https://h"),
        ("https://[::1]:8/a", "https://[::1]:8/a"),
    ])
    func target_hasNoCredentialsAndNoQuery(location: String, shown: String) {
        let response = UpstreamResponse(status: 301, headers: [("location", location)])
        #expect(response.redirectTarget == shown)
        #expect(
            Verdict.usual(for: response, now: Timestamp(milliseconds: 0))
                == .holdUpstream(
                    .configuration, detail: "HTTP 301: redirected to \(shown), which is not followed"))
    }

    /// Nothing is shown of what could be a password in a place where a client may find it.
    @Test(arguments: [
        "", "?sig=1", "user:pw@h/a", "https:user:pw@h/a", "https:///user:pw@h", "//", "https://user:pw@", "ftp://h/a",
        "\\\\user:pw@h", "/\\user:pw@h", "https://h/\u{7}", "https://h/é", "javascript:x", "a b",
    ])
    func target_isNotShown_ifItIsNotValid(location: String) {
        let response = UpstreamResponse(status: 302, headers: [("Location", location)])
        #expect(response.redirectTarget == nil)
        #expect(
            Verdict.usual(for: response, now: Timestamp(milliseconds: 0))
                == .holdUpstream(.configuration, detail: "HTTP 302: there is no such endpoint at this URL"))
    }

    @Test(arguments: [200, 201, 404, 503]) func otherResponse_isNotARedirect(status: Int) {
        let response = UpstreamResponse(status: status, headers: [("Location", "https://h/a")])
        #expect(response.redirectTarget == nil)
        #expect(response.outline() == "HTTP \(status)")
    }
}
