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

func tests(of name: String, _ dependencies: [Target.Dependency] = []) -> Target {
    .testTarget(
        name: name + "Tests",
        dependencies: [.init(stringLiteral: name), "PosternTestKit"] + dependencies,
        swiftSettings: strict)
}

/// A type of upstream: its adapter and its simulator, which share no code, the tests of each, and its part in the
/// simulated world.
func upstream(_ name: String) -> [Target] {
    let libraries: [Target.Dependency] = ["CCrypt", crypto]
    let tests: [Target.Dependency] = [
        "PosternTestKit", "PosternConformance", "PosternCore", "PosternJSON", "PosternTransport", crypto, logging,
    ]
    return [
        .target(
            name: name + "Adapter", dependencies: ["PosternCore", "PosternJSON", "PosternUpstreamKit"] + libraries,
            path: "Sources/Upstreams/\(name)/Adapter", swiftSettings: strict),
        .target(
            name: name + "Simulator", dependencies: ["PosternCore", "PosternHTTP", "PosternSimulatorKit"] + libraries,
            path: "Sources/Upstreams/\(name)/Simulator", swiftSettings: strict),
        .testTarget(
            name: name + "AdapterTests",
            dependencies: [
                .init(stringLiteral: name + "Adapter"), .init(stringLiteral: name + "Simulator"), "PosternUpstreamKit",
                "PosternSimulatorKit", "PosternMachineDriver", "PosternStore",
            ] + tests,
            path: "Tests/Upstreams/\(name)/Adapter", swiftSettings: strict),
        .testTarget(
            name: name + "SimulatorTests",
            dependencies: [.init(stringLiteral: name + "Simulator"), "PosternSimulatorKit", "PosternHTTP"] + tests,
            path: "Tests/Upstreams/\(name)/Simulator", swiftSettings: strict),
        .target(
            name: name + "Story", dependencies: ["PosternStory", "PosternCore", "PosternSimulatorKit"],
            path: "Tests/Upstreams/\(name)/Story", swiftSettings: strict),
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
let stories = upstreams.map { Target.Dependency(stringLiteral: $0 + "Story") }

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
        .target(name: "CCrypt", linkerSettings: [.linkedLibrary("crypt")]),
        .target(name: "CLinux"),
        .target(name: "CPosternChecksum"),
        .target(name: "CPosternJSON", linkerSettings: [.linkedLibrary("simdjson")]),
        // What `/openapi.yaml` serves.
        .target(name: "COpenAPI"),
        // In place of ICU's locale data, which a static program would contain; it is linked, and nothing imports it.
        .target(name: "CLocaleData"),

        // Values and decisions.
        part("PosternCore", [deque]),
        part("PosternMetrics", []),
        // One library each.
        part("PosternJSON", ["PosternCore", "CPosternJSON"]),
        part("PosternCompression", ["CZlib"]),
        part(
            "PosternStore",
            ["CLinux", "CPosternChecksum", "CSQLite", "PosternCore", "PosternMetrics", logging, deque, crypto]),
        part("PosternHTTP", ["PosternCore", "CMicrohttpd", logging]),
        part("PosternTransport", ["PosternCore", "CCurl"]),
        // What Postern is.
        part("PosternUpstreamKit", ["PosternCore", "PosternJSON", crypto]),
        part(
            "PosternDelivery",
            ["PosternCore", "PosternMetrics", "PosternStore", "PosternCompression", logging]),
        part(
            "PosternAPI",
            [
                "PosternCore", "PosternMetrics", "PosternJSON", "PosternStore", "PosternHTTP", "PosternDelivery",
                "PosternCompression", "COpenAPI", crypto, logging,
            ]),
        // Stand-ins for the upstreams, for trials and tests.
        part("PosternFaultServer", ["PosternCore", "PosternHTTP", logging]),
        part("PosternSimulatorKit", ["PosternCore", "PosternHTTP", "PosternFaultServer", "CZlib", logging]),
        part(
            "PosternGateway",
            [
                "CLinux", "PosternCore", "PosternMetrics", "PosternJSON", "PosternStore", "PosternHTTP",
                "PosternTransport", "PosternDelivery", "PosternAPI", "PosternProcess", logging,
            ] + adapters),
        part(
            "PosternCommands",
            [
                "PosternCore", "PosternMetrics", "PosternJSON", "PosternStore", "PosternHTTP", "PosternTransport",
                "PosternDelivery", "PosternAPI", "PosternGateway", "PosternProcess", logging,
            ]),
        // What a program of ours needs.
        part("PosternProcess", ["PosternCore", logging]),
        part("PosternSimulators", ["PosternSimulatorKit"] + simulators),
        .executableTarget(
            name: "postern-simulate",
            dependencies: [
                "CLocaleData", "PosternCore", "PosternProcess", "PosternSimulatorKit", "PosternSimulators", arguments,
                logging,
            ],
            swiftSettings: strict),
        .executableTarget(
            name: "postern",
            dependencies: [
                "CLinux", "CLocaleData", "PosternCommands", "PosternCore", "PosternGateway", "PosternProcess",
                "PosternStore", arguments, logging,
            ],
            swiftSettings: strict),

        // Tests: one target per module, and one that drives the built binary.
        .target(
            name: "PosternTestKit",
            dependencies: ["PosternCore"],
            path: "Tests/PosternTestKit", swiftSettings: strict),
        // A disk that fails: the functions of the C library that concern files, in C, and what tests see of it.
        .target(name: "CSimulatedDisk", path: "Tests/CSimulatedDisk"),
        .target(
            name: "PosternSimulatedDisk",
            dependencies: ["CSimulatedDisk"],
            path: "Tests/PosternSimulatedDisk", swiftSettings: strict),
        tests(of: "PosternSimulatedDisk", ["PosternCore", "PosternMetrics", "PosternStore", logging]),
        tests(of: "PosternCore"),
        tests(of: "PosternJSON", ["PosternCore"]),
        tests(of: "PosternCompression"),
        tests(of: "PosternMetrics"),
        tests(of: "PosternStore", ["CPosternChecksum", "CSQLite", "PosternCore", "PosternMetrics", logging]),
        tests(of: "PosternHTTP", ["PosternCore"]),
        tests(of: "PosternTransport", ["PosternCore", "PosternHTTP", logging]),
        .target(
            name: "PosternConformance",
            dependencies: [
                "PosternTestKit", "PosternCore", "PosternJSON", "PosternTransport", "PosternSimulatorKit", logging,
            ],
            path: "Tests/PosternConformance", swiftSettings: strict),
        // Apart from the conformance suite, so that a change of the store compiles only the tests that drive the machine.
        .target(
            name: "PosternMachineDriver", dependencies: ["PosternCore", "PosternStore", "PosternDelivery"],
            path: "Tests/PosternMachineDriver", swiftSettings: strict),
        .testTarget(
            name: "ToyTests",
            dependencies: [
                "PosternTestKit", "PosternConformance", "PosternCore", "PosternUpstreamKit", "PosternSimulatorKit",
                "PosternStory",
            ],
            path: "Tests/Upstreams/Toy", exclude: ["Fixtures", "storm.py"], swiftSettings: strict),
        tests(
            of: "PosternDelivery",
            [
                "PosternCore", "PosternMetrics", "PosternJSON", "PosternStore", "PosternTransport", "PosternHTTP",
                "PosternFaultServer", logging, memoryLogging,
            ] + adapters),
        tests(
            of: "PosternAPI",
            [
                "PosternCore", "PosternJSON", "PosternMetrics", "PosternHTTP", "PosternStore", "PosternDelivery",
                "PosternCompression", "PosternCommands", logging, memoryLogging,
            ] + adapters),
        tests(of: "PosternFaultServer", ["PosternHTTP", logging]),
        tests(
            of: "PosternSimulatorKit",
            ["PosternConformance", "PosternCore", "PosternHTTP", "PosternTransport", logging] + simulators),
        .target(
            name: "PosternGatewayTestKit",
            dependencies: ["PosternTestKit", "PosternCore", "PosternGateway"],
            path: "Tests/PosternGatewayTestKit", swiftSettings: strict),
        tests(
            of: "PosternGateway",
            [
                "PosternGatewayTestKit", "PosternCore", "PosternDelivery", "PosternHTTP", "PosternAPI",
                "PosternSimulatorKit", "PosternSimulators", "PosternStore", logging,
            ]),
        tests(
            of: "PosternCommands",
            [
                "PosternGatewayTestKit", "PosternCore", "PosternDelivery", "PosternMetrics", "PosternProcess",
                "PosternAPI", "PosternGateway", "PosternStore", crypto, logging,
            ]),
        // The simulated world, what it has to know of each type of upstream, and what runs many of them.
        .target(
            name: "PosternStory", dependencies: ["PosternCore", "PosternSimulatorKit"],
            path: "Tests/PosternStory", swiftSettings: strict),
        .target(
            name: "PosternWorld",
            dependencies: [
                "PosternTestKit", "PosternConformance", "PosternCore", "PosternGateway", "PosternHTTP", "PosternAPI",
                "PosternCompression", "PosternDelivery", "PosternStore", "PosternSimulatedDisk", "PosternSimulatorKit",
                "PosternSimulators",
                "PosternStory", logging,
            ] + stories,
            path: "Tests/PosternWorld", swiftSettings: strict),
        .executableTarget(
            name: "postern-world", dependencies: ["PosternWorld"], path: "Tests/postern-world", swiftSettings: strict),
        .testTarget(name: "PosternWorldTests", dependencies: ["PosternWorld"], swiftSettings: strict),
        .testTarget(
            name: "EndToEndTests",
            dependencies: [
                "PosternTestKit", "PosternConformance", "PosternCommands", "PosternCore", "PosternHTTP", "PosternAPI",
                "PosternSimulatorKit", "PosternSimulators", "PosternStore", "PosternTransport", crypto, logging,
            ],
            swiftSettings: strict),
    ] + upstreams.flatMap(upstream),
    cxxLanguageStandard: .cxx17
)
