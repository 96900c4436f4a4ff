internal import Foundation

/// A fault text that is not valid: the rule, and what is wrong with it.
public struct FaultsProblem: Error, Sendable, Equatable, CustomStringConvertible {
    public let description: String
    init(_ rule: some StringProtocol, _ detail: String) { description = "fault \"\(rule)\": \(detail)" }
}

extension Faults {
    /// Reads the form that `Faults` describes; blanks around rules do not matter, nor do empty rules.
    public init(parsing text: some StringProtocol) throws(FaultsProblem) {
        let parts = text.split(separator: ",").map { $0.trimmingCharacters(in: .whitespacesAndNewlines) }
            .filter { !$0.isEmpty }
        self.text = parts.joined(separator: ",")
        for rule in parts {
            if rule.hasPrefix("poison=") {
                poisons.append(try Poison(parsing: rule))
            } else {
                rules.append(try Rule(parsing: rule))
            }
        }
    }
}

extension Faults.Rule {
    init(parsing text: String) throws(FaultsProblem) {
        let whenParts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        let pathParts = whenParts[0].split(separator: "@", maxSplits: 1, omittingEmptySubsequences: false)
        self.init(
            fault: try Faults.Fault(parsing: String(pathParts[0]), in: text),
            path: pathParts.count == 2 ? try unescaped(pathParts[1], in: text) : "",
            when: whenParts.count == 2 ? try Faults.When(parsing: whenParts[1], in: text) : .always)
    }
}

extension Faults.Fault {
    private static let plain: [String: Self] = [
        "reset-before": .resetBefore, "reset-after": .resetAfter, "hang": .hang, "hang-after": .hangAfter,
        "mute": .mute,
        "garbage": .garbage, "truncate": .truncate, "pass": .pass,
    ]

    init(parsing text: String, in rule: String) throws(FaultsProblem) {
        let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        switch (parts[0], parts.count == 2 ? parts[1] : nil) {
        case ("status", let value?):
            let (status, retryAfter) = try Self.status(value, in: rule)
            self = .status(status, retryAfter: retryAfter)
        case ("cut", let value?):
            let (status, retryAfter) = try Self.status(value, in: rule)
            self = .cut(status, retryAfter: retryAfter)
        case ("delay", let value?): self = .delay(try Duration(value, in: rule))
        case ("drip", let value?): self = .drip(try Duration(value, in: rule))
        case ("status", nil), ("cut", nil), ("delay", nil), ("drip", nil):
            throw FaultsProblem(rule, "\(parts[0]) needs a value, e.g. status=503, delay=20ms")
        case (let name, let value):
            guard let fault = Self.plain[String(name)] else {
                throw FaultsProblem(
                    rule,
                    "unknown; there are status, cut, delay, drip, poison, "
                        + Self.plain.keys.sorted().joined(separator: ", "))
            }
            guard value == nil else { throw FaultsProblem(rule, "\(name) takes no value") }
            self = fault
        }
    }

    private static func status(
        _ text: Substring, in rule: String
    ) throws(FaultsProblem) -> (Int, Faults.RetryAfter?) {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let status = Int(parts[0]), (200...599).contains(status) else {
            throw FaultsProblem(rule, "a status is a number from 200 to 599")
        }
        guard parts.count == 2 else { return (status, nil) }
        let digits = parts[1].prefix { $0.isASCII && $0.isNumber }
        guard let seconds = Int(digits),
            let form = Faults.RetryAfter.Form(rawValue: String(parts[1].dropFirst(digits.count)))
        else { throw FaultsProblem(rule, "Retry-After is written as seconds, 30, or 30imf, 30rfc850, 30asctime") }
        return (status, .init(seconds: seconds, form: form))
    }
}

extension Faults.When {
    init(parsing text: Substring, in rule: String) throws(FaultsProblem) {
        if text.first == "x", let count = Int(text.dropFirst()), count > 0 {
            self = .next(count)
        } else if let chance = Double(text), (0...1).contains(chance) {
            self = .probability(chance)
        } else {
            throw FaultsProblem(rule, "after the colon, write a probability from 0 to 1, or x3 for three requests")
        }
    }
}

extension Faults.Poison {
    init(parsing text: String) throws(FaultsProblem) {
        let parts = text.dropFirst("poison=".count).split(separator: ":", omittingEmptySubsequences: false)
        guard (2...3).contains(parts.count), !parts[0].isEmpty else {
            throw FaultsProblem(text, "a poison is written member:value or member:value:answer")
        }
        var answer = Answer.failure
        if parts.count == 3 {
            guard let named = Answer(rawValue: String(parts[2])) else {
                throw FaultsProblem(text, "the answer to poison is 500, 413, 400, 401, 403, 404 or array")
            }
            answer = named
        }
        self.init(field: try unescaped(parts[0], in: text), value: try unescaped(parts[1], in: text), answer: answer)
    }
}

extension Duration {
    fileprivate init(_ text: Substring, in rule: String) throws(FaultsProblem) {
        if text.hasSuffix("ms"), let number = Int64(text.dropLast(2)), number >= 0 {
            self = .milliseconds(number)
        } else if text.hasSuffix("s"), let number = Int64(text.dropLast()), number >= 0, number <= Int64.max / 1000 {
            self = .seconds(number)
        } else {
            throw FaultsProblem(rule, "a time is written 20ms or 2s")
        }
    }
}

private func unescaped(_ text: Substring, in rule: String) throws(FaultsProblem) -> String {
    let decoded = PercentDecoded(text.utf8, plusIsSpace: false)
    guard decoded.isWhole else { throw FaultsProblem(rule, "% is followed by two hexadecimal digits") }
    return String(decoding: decoded.bytes, as: UTF8.self)
}
