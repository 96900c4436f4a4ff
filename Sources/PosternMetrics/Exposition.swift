/// Writes metrics as text.
public struct Exposition {
    public enum Format: Sendable, CaseIterable {
        /// The Prometheus text format, version 0.0.4.
        case prometheus
        /// OpenMetrics 1.0 (https://prometheus.io/docs/specs/om/open_metrics_spec/).
        case openMetrics

        /// The `Content-Type` of the format.
        public var contentType: String {
            switch self {
            case .prometheus: "text/plain; version=0.0.4; charset=utf-8"
            case .openMetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
        }

        /// What follows the last family.
        public var end: String { self == .openMetrics ? "# EOF\n" : "" }
    }

    public let format: Format
    /// All families that were written so far.
    public private(set) var text = ""

    public init(_ format: Format = .prometheus) { self.format = format }

    private mutating func head(_ name: String, _ kind: String, _ help: String) {
        // In OpenMetrics, the suffix belongs to the sample, not to the family.
        let isShort = format == .openMetrics && kind == "counter" && name.hasSuffix("_total")
        let family = isShort ? String(name.dropLast(6)) : name
        text += "# HELP \(family) \(help)\n# TYPE \(family) \(kind)\n"
    }

    private mutating func sample(_ name: String, _ labels: [(String, String)], _ value: String) {
        text += name
        for (index, (label, labelValue)) in labels.enumerated() {
            text += index == 0 ? "{" : ","
            text += label
            text += "=\""
            text += Self.escaped(labelValue)
            text += "\""
        }
        text += labels.isEmpty ? " " : "} "
        text += value
        text += "\n"
    }

    /// Label values escape backslash, quote and line feed.
    private static func escaped(_ value: String) -> String {
        guard value.utf8.contains(where: { $0 == 0x5C || $0 == 0x22 || $0 == 0x0A }) else { return value }
        var result = ""
        for character in value {
            switch character {
            case "\\": result += "\\\\"
            case "\"": result += "\\\""
            case "\n": result += "\\n"
            default: result.append(character)
            }
        }
        return result
    }

    private static func number(_ value: Double) -> String {
        value == value.rounded() && abs(value) < 1e15 ? String(Int64(value)) : String(value)
    }

    mutating func counters(_ name: String, _ help: String, _ family: Family<Counter>) {
        head(name, "counter", help)
        for (values, series) in family.all {
            sample(name, Array(zip(family.labels, values)), String(series.value))
        }
    }

    mutating func histograms(_ name: String, _ help: String, _ family: Family<Histogram>) {
        head(name, "histogram", help)
        for (values, series) in family.all {
            let labels = Array(zip(family.labels, values))
            let cumulative = series.cumulative
            for (index, bound) in series.bounds.enumerated() {
                sample(name + "_bucket", labels + [("le", Self.number(bound))], String(cumulative[index]))
            }
            sample(name + "_bucket", labels + [("le", "+Inf")], String(cumulative[series.bounds.count]))
            sample(name + "_sum", labels, Self.number(series.sum))
            sample(name + "_count", labels, String(cumulative[series.bounds.count]))
        }
    }

    /// Values that are read when the metrics are requested.
    public mutating func gauges(
        _ name: String, _ help: String, _ samples: [(labels: [(String, String)], value: Double)]
    ) {
        head(name, "gauge", help)
        for (labels, value) in samples { sample(name, labels, Self.number(value)) }
    }

    /// A counter that is kept elsewhere, for example by the system.
    public mutating func counter(_ name: String, _ help: String, _ value: Double) {
        head(name, "counter", help)
        sample(name, [], Self.number(value))
    }
}
