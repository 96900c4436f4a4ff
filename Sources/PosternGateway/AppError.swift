public import PosternStore
import PosternThreads

/// Why the gateway did not run, with the exit code for it (design, section 6).
public enum AppError: Error, Sendable, CustomStringConvertible {
    case configuration(ConfigurationProblems)
    case store(StoreError)
    case cannotListen(String)
    /// The system does not give the process what it requires: threads, descriptors.
    case system(String)

    public var description: String {
        switch self {
        case .configuration(let problems): "\(problems)"
        case .store(let error): "\(error)."
        case .cannotListen(let detail), .system(let detail): detail
        }
    }

    init(_ failure: Simulators.Failure) {
        switch failure {
        case .noProgram(let detail): self = .cannotListen(detail)
        case .ports(let detail): self = .cannotListen("\(detail). Choose other ports with --simulate-port.")
        case .failed(let detail): self = .system("\(detail).")
        }
    }

    /// One of sysexits.h.
    public var exitCode: Int32 {
        switch self {
        case .configuration: 78
        case .store(.alreadyRunning), .store(.nodeRunning): 75
        case .store(.systemLimit), .system: SystemLimitError.exitCode
        case .store(.otherType): 78
        case .store(.ownershipLost): 74
        case .store: 73
        case .cannotListen: 69
        }
    }
}
