import Foundation

/// Tests that measure how long something takes, which depends on what else the machine does. `make test` leaves them out;
/// `make timing` runs the suites with `Timing` in their names.
public enum Timing {
    public static let isMeasured = ProcessInfo.processInfo.environment["POSTERN_TIMING"] != nil
}
