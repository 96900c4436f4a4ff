internal import Glibc
package import PosternCore

extension Faults.RetryAfter {
    /// The header's value for a response at `now`.
    package func value(at now: Timestamp) -> String {
        switch form {
        case .seconds: String(seconds)
        case .imf: date(now, "%a, %d %b %Y %H:%M:%S GMT")
        case .rfc850: date(now, "%A, %d-%b-%y %H:%M:%S GMT")
        case .asctime: date(now, "%a %b %e %H:%M:%S %Y")
        }
    }

    private func date(_ now: Timestamp, _ format: String) -> String {
        var moment = time_t(now.milliseconds / 1000 + Int64(seconds))
        var fields = tm()
        gmtime_r(&moment, &fields)
        return String(unsafeUninitializedCapacity: 64) { text in
            text.withMemoryRebound(to: CChar.self) { strftime($0.baseAddress!, $0.count, format, &fields) }
        }
    }
}
