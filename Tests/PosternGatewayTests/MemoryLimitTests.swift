import Foundation
import PosternTestKit
import Testing

@testable import PosternGateway

@Suite struct MemoryLimitTests {
    private let folder = ScratchFolder()

    private func limit(_ files: [String: String]) throws -> Int {
        for (path, text) in files {
            let file = URL(filePath: folder.file(path))
            try FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
            try text.write(to: file, atomically: true, encoding: .utf8)
        }
        return MemoryLimit.bytes(root: folder.file(""))
    }

    @Test func limit_isTheLeastOfTheGroupAndThoseAboveIt() throws {
        #expect(
            try limit([
                "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "134217728\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
            ]) == 134_217_728)
    }

    @Test func limit_isRead_whereOnlyTheTopIsThere() throws {
        #expect(
            try limit(["proc/self/cgroup": "0::/host/path\n", "sys/fs/cgroup/memory.max": "1048576\n"]) == 1_048_576)
    }

    @Test func limit_isRead_ofVersionOne() throws {
        #expect(
            try limit([
                "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/x\n",
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "2097152\n",
            ]) == 2_097_152)
    }

    @Test func limit_isTheMachinesMemory_withoutAGroup() throws {
        let machine = MemoryLimit.bytes(root: folder.file("nothing/"))
        #expect(machine > 1 << 26)
        #expect(try limit(["proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"]) == machine)
    }
}
