import CLinux
import Glibc

/// The kind of file system that a store is on.
struct FileSystem {
    /// `f_type` of statfs(2).
    let type: Int

    init(type: Int) { self.type = type }

    init(of path: String) {
        var status = statfs()
        type = statfs(Files.folder(of: path), &status) == 0 ? Int(status.f_type) : 0
    }

    /// Why a commit on it may not be durable; nil if no reason is known.
    var doubt: String? {
        switch type & 0xFFFF_FFFF {
        case 0x0102_1994, 0x8584_58F6: "it is in memory (tmpfs): everything is lost when the machine restarts"
        case 0x794C_7630: "it is the layer of a container (overlay): everything is lost with the container"
        case 0x6969: "it is on a network (NFS): locks and syncs may be weaker than on a disk"
        case 0xFF53_4D42, 0xFE53_4D42, 0x517B:
            "it is on a network (SMB): locks and syncs may be weaker than on a disk"
        case 0x6573_5546: "it is in user space (FUSE): whether a sync reaches a disk depends on its program"
        default: nil
        }
    }
}
