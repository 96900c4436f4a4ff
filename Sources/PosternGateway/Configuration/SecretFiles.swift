import Glibc

/// The files of a directory of secrets, e.g. /run/secrets: one for each key, named by its path with dashes for dots.
///
/// Symbolic links are followed: a Kubernetes secret consists of them. The directory may also contain secrets of other
/// programs, so a file whose name does not begin with a section of the configuration is not opened.
struct SecretFiles {
    private var directory = ""
    /// All files, by name.
    private var names: [String] = []
    /// The contents of the files that may belong to the gateway, by name.
    private(set) var texts: [String: String] = [:]
    private(set) var problems: [ConfigurationProblem] = []

    init() {}

    init(in directory: String) {
        self.directory = directory
        guard let stream = opendir(directory) else {
            problems = [ConfigurationProblem(directory, "cannot be listed: \(lastError()); see POSTERN_SECRETS_DIR")]
            return
        }
        defer { closedir(stream) }
        while let entry = readdir(stream) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: Int(NAME_MAX) + 1) { String(cString: $0) }
            }
            names.append(name)
            guard ConfigurationSchema.sectionNames.contains(where: { name.hasPrefix($0 + "-") }) else { continue }
            switch readFile("\(directory)/\(name)", atMost: 65_536) {
            case .success(let bytes): texts[name] = trimmed(String(decoding: bytes, as: UTF8.self))
            case .failure(let failure):
                problems.append(ConfigurationProblem("\(directory)/\(name)", "\(failure.detail)"))
            }
        }
    }

    /// Problems with files that no setting reads, but whose name is close to one that a setting would read. Any other
    /// file belongs to another program.
    func misspelt(by schema: ConfigurationSchema, keys: [String]) -> [ConfigurationProblem] {
        let known = Set((schema.leaves + keys.map { ConfigurationSchema.keysPath + [$0] }).map(secretFileName))
        return names.sorted().compactMap { name in
            guard !known.contains(name), let near = nearestName(to: name, among: known) else { return nil }
            return ConfigurationProblem("\(directory)/\(name)", "is not read by any setting; did you mean \(near)?")
        }
    }
}
