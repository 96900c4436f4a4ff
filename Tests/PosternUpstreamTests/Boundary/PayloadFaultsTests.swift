import PosternCore
import PosternUpstream
import Testing

@Suite struct PayloadFaultsTests {
    @Test func faults_areKeptUpToTheLimit_andCountedBeyondIt() {
        var faults = PayloadErrors(atMost: 2)
        var texts = 0
        func detail() -> String {
            texts += 1
            return "bad"
        }
        for number in 0..<5 { faults.add("/\(number)", detail()) }
        #expect(faults.kept.map(\.pointer) == ["/0", "/1"])
        #expect(faults.omitted == 3)
        #expect(faults.count == 5)
        #expect(texts == 2)
    }

    @Test func faults_areNotEmpty_whenAllAreOmitted() {
        var faults = PayloadErrors(atMost: 0)
        #expect(faults.isEmpty)
        faults.add("", "bad")
        #expect(!faults.isEmpty)
        #expect(faults.kept.isEmpty)
    }

    @Test func faultsFoundElsewhere_areAddedBelowAPointer() {
        var inner = PayloadErrors(atMost: 2)
        for name in ["a", "b", "c"] { inner.add("/\(name)", "bad") }
        var outer = PayloadErrors(atMost: 1)
        outer.add(inner, below: "/payload")
        #expect(outer.kept == [PayloadError("/payload/a", "bad")])
        #expect(outer.omitted == 2)
    }
}
