import Glibc
import PosternCore
import PosternMetrics

/// The `process_*` metrics that every Prometheus client library has, read off /proc.
enum ProcessFigures {
    /// When the kernel started this process. If /proc is not mounted, the time of the first request for it.
    static let startedAt = SystemTime().now - (age ?? .zero)

    static func write(to exposition: inout Exposition) {
        exposition.counter("process_cpu_seconds_total", "User and system time.", cpuSeconds)
        exposition.gauges("process_resident_memory_bytes", "Resident memory.", [([], Double(residentBytes))])
        exposition.gauges(
            "process_virtual_memory_bytes", "Virtual memory.", [([], Double(memoryPages().virtual * pageBytes))])
        exposition.gauges("process_open_fds", "Open file descriptors.", [([], Double(openDescriptors()))])
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        exposition.gauges("process_max_fds", "Limit of open file descriptors.", [([], Double(limit.rlim_cur))])
        exposition.gauges(
            "process_start_time_seconds", "Start of the process since 1970.",
            [([], Double(startedAt.milliseconds) / 1000)])
    }

    static var residentBytes: Int { memoryPages().resident * pageBytes }
    private static let pageBytes = sysconf(Int32(_SC_PAGESIZE))

    private static var cpuSeconds: Double {
        var usage = rusage()
        getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
        func seconds(_ time: timeval) -> Double { Double(time.tv_sec) + Double(time.tv_usec) / 1_000_000 }
        return seconds(usage.ru_utime) + seconds(usage.ru_stime)
    }

    /// Field 22 of /proc/self/stat is the start in clock ticks since the boot. The name in field 2 may hold blanks and
    /// parentheses, so fields are counted from its last parenthesis.
    private static var age: Duration? {
        guard let file = fopen("/proc/self/stat", "r") else { return nil }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 1024)
        guard fgets(&line, Int32(line.count), file) != nil else { return nil }
        let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        let fields = text.split(separator: ")").last?.split(separator: " ") ?? []
        guard fields.count > 19, let ticks = Int64(fields[19]) else { return nil }
        var sinceBoot = timespec()
        clock_gettime(CLOCK_BOOTTIME, &sinceBoot)
        let now = Duration.seconds(sinceBoot.tv_sec) + .nanoseconds(sinceBoot.tv_nsec)
        return now - .milliseconds(ticks * 1000 / Int64(sysconf(Int32(_SC_CLK_TCK))))
    }

    private static func memoryPages() -> (virtual: Int, resident: Int) {
        guard let file = fopen("/proc/self/statm", "r") else { return (0, 0) }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 128)
        guard fgets(&line, Int32(line.count), file) != nil else { return (0, 0) }
        let text = line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
        let fields = String(decoding: text, as: UTF8.self).split(separator: " ")
        return fields.count < 2 ? (0, 0) : (Int(fields[0]) ?? 0, Int(fields[1]) ?? 0)
    }

    private static func openDescriptors() -> Int {
        guard let folder = opendir("/proc/self/fd") else { return 0 }
        defer { closedir(folder) }
        var count = 0
        while readdir(folder) != nil { count += 1 }
        // Without `.`, `..` and the folder itself.
        return max(0, count - 3)
    }
}
