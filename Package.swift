// swift-tools-version: 6.2

import PackageDescription

/// Every Swift target of ours: language mode 6, imports that stay inside unless said otherwise, no warning left.
let strict: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .treatAllWarnings(as: .error),
]

let logging = Target.Dependency.product(name: "Logging", package: "swift-log")
let memoryLogging = Target.Dependency.product(name: "InMemoryLogging", package: "swift-log")
let deque = Target.Dependency.product(name: "DequeModule", package: "swift-collections")
let crypto = Target.Dependency.product(name: "Crypto", package: "swift-crypto")
let arguments = Target.Dependency.product(name: "ArgumentParser", package: "swift-argument-parser")

func part(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .target(name: name, dependencies: dependencies, swiftSettings: strict)
}

/// What most tests build upon.
let basicNames = ["PosternTestKit", "PosternCore", "PosternEvents", "PosternThreads", "PosternUpstream"]
let basics = basicNames.map { Target.Dependency(stringLiteral: $0) }

func tests(of name: String, _ dependencies: [Target.Dependency] = []) -> Target {
    .testTarget(
        name: name + "Tests",
        dependencies: basics + (basicNames.contains(name) ? [] : [.init(stringLiteral: name)]) + dependencies,
        swiftSettings: strict)
}

/// A type of upstream: its adapter and its simulator, which share no code, the tests of each, and its part in the
/// simulated world.
func upstream(_ name: String) -> [Target] {
    let client: [Target.Dependency] = name == "StreamOne" ? ["StreamOneClient"] : []
    let tests = basics + ["PosternConformance", "PosternTransport", crypto, logging]
    return [
        .target(
            name: name + "Adapter", dependencies: ["PosternCore", "PosternUpstream", crypto] + client,
            path: "Sources/Upstreams/\(name)/Adapter", swiftSettings: strict),
        .target(
            name: name + "Simulator",
            dependencies: ["CCrypt", "PosternCore", "PosternHTTP", "PosternSimulatorKit", crypto],
            path: "Sources/Upstreams/\(name)/Simulator", swiftSettings: strict),
        .testTarget(
            name: name + "AdapterTests",
            dependencies: [
                .init(stringLiteral: name + "Adapter"), .init(stringLiteral: name + "Simulator"),
                "PosternSimulatorKit", "PosternMachineDriver", "PosternStore",
            ] + client + tests,
            path: "Tests/Upstreams/\(name)/Adapter", swiftSettings: strict),
        .testTarget(
            name: name + "SimulatorTests",
            dependencies: [
                .init(stringLiteral: name + "Simulator"), .init(stringLiteral: name + "Scenarios"),
                "PosternScenarios", "PosternSimulatorKit", "PosternHTTP",
            ] + tests,
            path: "Tests/Upstreams/\(name)/Simulator", swiftSettings: strict),
        .target(
            name: name + "Scenarios", dependencies: ["PosternScenarios", "PosternCore", "PosternSimulatorKit", crypto],
            path: "Tests/Upstreams/\(name)/Scenarios", swiftSettings: strict),
    ]
}

/// The types of upstreams, in the order of the ports of their simulators. `scripts/write-registry.sh` writes the registry
/// from this list.
let upstreams = [
    "Samsara",
    "Seer",
    "Curio",
    "AppServices",
    "StreamOne",
    "Webhook",
]
let adapters = upstreams.map { Target.Dependency(stringLiteral: $0 + "Adapter") }
let simulators = upstreams.map { Target.Dependency(stringLiteral: $0 + "Simulator") }
let scenarios = upstreams.map { Target.Dependency(stringLiteral: $0 + "Scenarios") }

let package = Package(
    name: "postern",
    products: [
        .executable(name: "postern", targets: ["postern"]),
        .executable(name: "postern-simulate", targets: ["postern-simulate"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", exact: "1.8.2"),
        .package(url: "https://github.com/apple/swift-log", exact: "1.16.2"),
        .package(url: "https://github.com/apple/swift-collections", exact: "1.6.0"),
        .package(url: "https://github.com/apple/swift-crypto", exact: "4.5.2"),
    ],
    targets: [
        // C libraries: shims only.
        .target(name: "CMicrohttpd", linkerSettings: [.linkedLibrary("microhttpd"), .linkedLibrary("gnutls")]),
        .target(name: "CCurl", linkerSettings: [.linkedLibrary("curl")]),
        .target(name: "CZlib", linkerSettings: [.linkedLibrary("z")]),
        .target(name: "CSQLite", linkerSettings: [.linkedLibrary("sqlite3")]),
        .target(name: "CPostgres", linkerSettings: [.linkedLibrary("pq")]),
        .target(name: "CCrypt", linkerSettings: [.linkedLibrary("crypt")]),
        .target(name: "CLinux"),
        .target(name: "CPosternChecksum"),
        .target(name: "CPosternJSON", linkerSettings: [.linkedLibrary("simdjson")]),
        // What `/openapi.yaml` serves.
        .target(name: "COpenAPI"),
        // What `/console` serves.
        .target(name: "CConsole", exclude: ["files"]),
        // In place of ICU's locale data, which a static program would contain; it is linked, and nothing imports it.
        .target(name: "CLocaleData"),

        // Values and decisions.
        part("PosternCore", []),
        part("PosternMetrics", []),
        // What an author of a type of upstream imports.
        part("PosternUpstream", ["PosternCore", "CPosternJSON", crypto]),
        part("PosternEvents", ["PosternCore", "PosternThreads", "PosternUpstream"]),
        // What runs in the background.
        part("PosternThreads", ["PosternCore", deque]),
        // One library each.
        part("PosternCompression", ["CZlib"]),
        part(
            "PosternStore",
            [
                "CLinux", "CPosternChecksum", "CPostgres", "CSQLite", "PosternCore", "PosternEvents",
                "PosternMetrics", "PosternThreads", "PosternUpstream", logging, deque, crypto,
            ]),
        part("PosternHTTP", ["PosternCore", "PosternThreads", "CMicrohttpd", logging]),
        part("PosternTransport", ["PosternCore", "PosternThreads", "PosternUpstream", "CCurl"]),
        // What Postern is.
        part(
            "PosternDelivery",
            [
                "PosternCore", "PosternEvents", "PosternMetrics", "PosternStore", "PosternThreads", "PosternUpstream",
                "PosternCompression", logging,
            ]),
        part(
            "PosternAPI",
            [
                "PosternCore", "PosternEvents", "PosternMetrics", "PosternThreads", "PosternUpstream", "PosternStore",
                "PosternHTTP", "PosternDelivery", "PosternCompression", "CConsole", "COpenAPI", crypto,
                logging,
            ]),
        // Stand-ins for the upstreams, for trials and tests.
        part("PosternFaultServer", ["PosternCore", "PosternHTTP", "PosternThreads", logging]),
        part("PosternSimulatorKit", ["PosternCore", "PosternHTTP", "PosternFaultServer", "CZlib", logging]),
        part(
            "PosternGateway",
            [
                "CLinux", "PosternCore", "PosternMetrics", "PosternThreads", "PosternUpstream", "PosternStore",
                "PosternHTTP",
                "PosternTransport", "PosternDelivery", "PosternAPI", "PosternProcess", logging,
            ] + adapters),
        part(
            "PosternCommands",
            [
                "PosternCore", "PosternMetrics", "PosternThreads", "PosternUpstream", "PosternStore", "PosternHTTP",
                "PosternTransport", "PosternDelivery", "PosternAPI", "PosternGateway", "PosternProcess", logging,
            ]),
        // What a program of ours needs.
        part("PosternProcess", ["PosternCore", "PosternThreads", logging]),
        part("PosternSimulators", ["PosternSimulatorKit"] + simulators),
        // StreamOne's calls that are answered at once: the queue's adapter tells it what its own calls show.
        .target(
            name: "StreamOneClient", dependencies: ["CCrypt", "PosternCore", "PosternUpstream", crypto],
            path: "Sources/Upstreams/StreamOne/Client", swiftSettings: strict),
        .executableTarget(
            name: "postern-simulate",
            dependencies: [
                "CLocaleData", "PosternCore", "PosternProcess", "PosternSimulatorKit", "PosternSimulators",
                "PosternThreads", arguments, logging,
            ],
            swiftSettings: strict),
        .executableTarget(
            name: "postern",
            dependencies: [
                "CLinux", "CLocaleData", "PosternCommands", "PosternCore", "PosternGateway", "PosternProcess",
                "PosternStore", "PosternThreads", "PosternUpstream", arguments, logging,
            ],
            swiftSettings: strict),

        // Tests: one target per module, and one that drives the built binary.
        .target(
            name: "PosternTestKit",
            dependencies: ["PosternCore", "PosternEvents", "PosternThreads", "PosternUpstream"],
            path: "Tests/PosternTestKit", swiftSettings: strict),
        // A disk that fails: the functions of the C library that concern files, in C, and what tests see of it.
        .target(name: "CSimulatedDisk", dependencies: ["CSQLite"], path: "Tests/CSimulatedDisk"),
        .target(
            name: "PosternSimulatedDisk",
            dependencies: ["CSimulatedDisk"],
            path: "Tests/PosternSimulatedDisk", swiftSettings: strict),
        // The store on that disk, with faults by chance or at every place, and what runs many of them.
        .target(
            name: "PosternStoreTrial",
            dependencies: basics + ["PosternSimulatedDisk", "PosternMetrics", "PosternStore", logging],
            path: "Tests/PosternStoreTrial", swiftSettings: strict),
        .executableTarget(
            name: "postern-faults", dependencies: ["PosternStoreTrial"], path: "Tests/postern-faults",
            swiftSettings: strict),
        tests(of: "PosternSimulatedDisk", ["PosternStoreTrial", "PosternMetrics", "PosternStore", logging]),
        tests(of: "PosternCore"),
        tests(of: "PosternUpstream"),
        tests(of: "PosternEvents"),
        tests(of: "PosternThreads"),
        tests(of: "PosternCompression"),
        tests(of: "PosternMetrics"),
        tests(of: "PosternStore", ["CPosternChecksum", "CSQLite", "PosternMetrics", logging]),
        tests(of: "PosternHTTP"),
        tests(of: "PosternTransport", ["PosternHTTP", logging]),
        .target(
            name: "PosternConformance",
            dependencies: [
                "PosternTestKit", "PosternCore", "PosternUpstream", "PosternTransport", "PosternSimulatorKit", logging,
            ],
            path: "Tests/PosternConformance", swiftSettings: strict),
        // Apart from the conformance suite, so that a change of the store compiles only the tests that drive the machine.
        .target(
            name: "PosternMachineDriver",
            dependencies: ["PosternCore", "PosternUpstream", "PosternStore", "PosternDelivery"],
            path: "Tests/PosternMachineDriver", swiftSettings: strict),
        .testTarget(
            name: "ToyTests",
            dependencies: [
                "PosternTestKit", "PosternConformance", "PosternCore", "PosternUpstream", "PosternSimulatorKit",
                "PosternScenarios",
            ],
            path: "Tests/Upstreams/Toy", exclude: ["Fixtures", "storm.py"], swiftSettings: strict),
        tests(
            of: "PosternDelivery",
            [
                "PosternMetrics", "PosternStore", "PosternTransport", "PosternHTTP", "PosternFaultServer", logging,
                memoryLogging,
            ] + adapters),
        tests(
            of: "PosternAPI",
            [
                "PosternMetrics", "PosternHTTP", "PosternStore", "PosternDelivery", "PosternCompression",
                "PosternCommands",
                "StreamOneClient", logging, memoryLogging,
            ] + adapters),
        tests(of: "PosternFaultServer", ["PosternHTTP", logging]),
        tests(
            of: "PosternSimulatorKit",
            ["PosternConformance", "PosternTransport", logging] + simulators),
        .target(
            name: "PosternGatewayTestKit",
            dependencies: ["PosternTestKit", "PosternCore", "PosternUpstream", "PosternGateway"],
            path: "Tests/PosternGatewayTestKit", swiftSettings: strict),
        tests(
            of: "PosternGateway",
            [
                "PosternGatewayTestKit", "PosternDelivery", "PosternHTTP", "PosternAPI", "PosternProcess",
                "PosternSimulatorKit", "PosternSimulators", "PosternStore", logging,
            ]),
        tests(
            of: "PosternCommands",
            [
                "PosternGatewayTestKit", "PosternDelivery", "PosternMetrics", "PosternProcess", "PosternAPI",
                "PosternGateway", "PosternStore", crypto, logging,
            ]),
        // The simulated world, what it has to know of each type of upstream, and what runs many of them.
        .target(
            name: "PosternScenarios", dependencies: ["PosternCore", "PosternSimulatorKit"],
            path: "Tests/PosternScenarios", swiftSettings: strict),
        .target(
            name: "PosternWorld",
            dependencies: basics + [
                "PosternConformance", "PosternGateway", "PosternHTTP", "PosternAPI", "PosternCompression",
                "PosternDelivery", "PosternStore", "PosternSimulatedDisk", "PosternSimulatorKit", "PosternSimulators",
                "PosternScenarios", logging,
            ] + scenarios,
            path: "Tests/PosternWorld", swiftSettings: strict),
        .executableTarget(
            name: "postern-world", dependencies: ["PosternWorld"], path: "Tests/postern-world", swiftSettings: strict),
        .testTarget(name: "PosternWorldTests", dependencies: ["PosternWorld"], swiftSettings: strict),
        .testTarget(
            name: "EndToEndTests",
            dependencies: basics + [
                "PosternConformance", "PosternCommands", "PosternHTTP", "PosternAPI", "PosternSimulatorKit",
                "PosternSimulators", "PosternStore", crypto, logging,
            ],
            swiftSettings: strict),
    ] + upstreams.flatMap(upstream),
    cxxLanguageStandard: .cxx17
)
