package import PosternSimulatedDisk

/// A fault at one place of a story: at the `number`-th call of its kind, counted from 0.
package struct PlannedFault: Sendable, Equatable, CustomStringConvertible {
    package enum Kind: String, Sendable, CaseIterable {
        case short = "short"
        case ioError = "EIO"
        /// This one and the next 50 calls.
        case ioErrors = "EIO, lasting"
        case noSpace = "ENOSPC"
        case noSpaces = "ENOSPC, lasting"
        /// Memory is not allocated.
        case noMemory = "ENOMEM"
        case noMemories = "ENOMEM, lasting"
        /// The process ends in the middle of the call.
        case kill = "kill"
        /// The power as well.
        case powerCut = "power cut"

        private var fault: DiskFault {
            switch self {
            case .short: .short
            case .ioError, .ioErrors, .noMemory, .noMemories: .ioError
            case .noSpace, .noSpaces: .noSpace
            case .kill, .powerCut: .stop
            }
        }

        private var lasts: Bool { self == .ioErrors || self == .noSpaces || self == .noMemories }

        fileprivate func strike(_ disk: SimulatedDisk, on call: DiskCall, after number: Int) {
            disk.strike(fault, on: call, after: number, times: lasts ? 51 : 1)
        }

        /// What can strike a call. What only reads leaves nothing behind that a kill there would show.
        package static func all(of call: DiskCall) -> [Kind] {
            switch call {
            case .read: [.short, .ioError, .ioErrors]
            case .open, .status: [.ioError, .ioErrors]
            case .write: [.short, .ioError, .ioErrors, .noSpace, .noSpaces, .kill, .powerCut]
            case .allocate, .makeFolder: [.ioError, .ioErrors, .noSpace, .noSpaces, .kill, .powerCut]
            case .memory: [.noMemory, .noMemories]
            case .sync, .truncate, .delete, .rename: [.ioError, .ioErrors, .kill, .powerCut]
            }
        }
    }

    package let kind: Kind
    package let call: DiskCall
    package let number: Int

    package init(_ kind: Kind, _ call: DiskCall, _ number: Int) {
        (self.kind, self.call, self.number) = (kind, call, number)
    }

    package var description: String { "\(kind.rawValue) at \(call.rawValue) \(number)" }

    func strike(_ disk: SimulatedDisk) { kind.strike(disk, on: call, after: number) }
}
