import PosternCore
import Testing

@Suite struct SplitMix64Tests {
    /// The first numbers of its authors' program.
    @Test func numbers_areThoseOfTheReference() {
        var numbers = SplitMix64(state: 1_234_567)
        #expect(
            (0..<5).map { _ in numbers.next() } == [
                6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423,
                4_593_380_528_125_082_431, 16_408_922_859_458_223_821,
            ])
    }

    @Test func fraction_isBelowOne() {
        var numbers = SplitMix64(state: 7)
        let fractions = (0..<1000).map { _ in numbers.fraction() }
        #expect(fractions.allSatisfy { (0..<1).contains($0) } && Set(fractions).count == 1000)
    }
}
