import Foundation
import Logging
import PosternCore
import PosternSimulatedDisk
import PosternScenarios
import PosternTestKit

@testable import PosternGateway
@testable import PosternStore

/// The gateway's process: how it starts, and how it ends.
extension World {
    func start() {
        precondition(run == nil, "it runs already")
        let settings = plan.settings
        noticeLoss()
        processStarts()
        history.record("starts")
        let made = Handed<IngressStub>()
        let network = Network(self, run: runs)
        do {
            let gateway = try Services(
                try configuration(), repair, in: environment(network, made),
                logger: Logger(label: "postern") { [promises, plan] _ in
                    WorldLog(promises, plan.settings.logsAll ? .trace : .info)
                })
            _ = threads.start(network)
            _ = try gateway.start()
            guard let ingress = made.value else { preconditionFailure("there is an ingress") }
            ingress.willAnswer = { [unowned self] in noticeStop() }
            ingress.key = settings.turns.isEmpty ? nil : TurnWatch.key(of: nil)
            run = Run(gateway, ingress, network, plan.types)
        } catch {
            network.abandon()
            return startFailed(error)
        }
        noticeStop()
        guard run != nil else { return }
        repair = App.Options(configFile: ConfigurationFile(""))
        oldestKey = keyChanges
        if let run { examineAfterLoss(run) }
        promises.started()
    }

    private func environment(_ network: Network, _ made: Handed<IngressStub>) -> Environment {
        // No process has the numbers of another one.
        let name = stops > 0 ? "random \(runs) \(stops)" : "random \(runs)"
        nonisolated(unsafe) let random = SeededRandom(seed: plan.seed, for: name)
        return Environment(
            time: time, threads: threads, random: { random.next() }, makeTransport: { _ in network },
            makeListeners: { _, memory, handler, _ in
                let ingress = IngressStub(handler, memory)
                made.value = ingress
                return ingress
            })
    }

    /// The process ends; it will be started again.
    private func startFailed(_ error: any Error) {
        history.record("cannot start: \(disk.neutral("\(error)"))")
        if disk.hasStopped {
            recordStop()
        } else if hasLost || isDamaged {
            chooseRepair(of: error)
        } else if !weather.mayPreventStart {
            promises.fail("the gateway starts", disk.neutral("\(error)"))
        }
        runs += 1
        endLife(disk.hasStopped ? death : .kill)
        endThreads()
    }

    /// What the message says that an operator can do.
    private func chooseRepair(of error: any Error) {
        promises.coverage.visit("store: damaged, and repaired by the operator")
        promises.lossHappened()
        guard case .store(let damage)? = error as? AppError else { return }
        switch damage {
        case .corrupt: repair.startFresh = true
        case .logDamaged: repair.recover = true
        default: deleteStore()
        }
    }

    func configuration() throws -> ConfigurationLoader.LoadedConfiguration {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        let file = "\(directory)/config.json"
        let settings = plan.settings
        let upstreams = plan.types.filter { !removed.contains($0.name) }.map { type in
            let own = type.settings(sendsGzip: settings.sendsGzip, seed: plan.seed)
            let cap = settings.caps.filter { $0.upstream == type.name }.map(\.json)
            let sdk = type.sdkSettings(seed: plan.seed, hasKeys: !settings.turns.isEmpty).map {
                #""sdk":{\#((["\"enabled\":true"] + $0).joined(separator: ","))}"#
            }
            let members = own + cap + [sdk].compactMap(\.self)
            return #""\#(type.name)":{\#(members.joined(separator: ","))}"#
        }
        let retryMax = reloads.isMultiple(of: 2) ? 300 : 60
        let text = #"""
            {"outbox":{"path":"\#(path)","deliveredRetentionSeconds":\#(settings.retention),
            "deliveredPayloadSeconds":\#(settings.payloadRetention),
            "failedRetentionSeconds":\#(settings.retention),\#(encryptionKeys)},
            "delivery":{"maxInFlight":\#(settings.maxInFlight),"batchMaxMessages":\#(settings.batchMaxMessages),
            "maxRequestsPerSecond":\#(settings.maxRequestsPerSecond),
            "maxMessagesPerSecond":\#(settings.maxMessagesPerSecond),"adaptive":\#(settings.isAdaptive),
            "batchMaxWaitSeconds":\#(settings.batchMaxWait),"retryMaxSeconds":\#(retryMax),
            "queueOldSeconds":\#(settings.queueOld)\#(turns.fairBy.map { #","fairBy":"\#($0)""# } ?? "")},
            "auth":{"keys":[\#(turns.keys.joined(separator: ","))]},
            "log":{"level":"trace"},"callbacks":[\#(settings.callbacks?.json ?? "")],"upstreams":{\#(upstreams.joined(separator: ","))}}
            """#
        try Data(text.utf8).write(to: URL(filePath: file))
        var loader = ConfigurationLoader(
            types: UpstreamRegistry.all, environment: [:], file: file, secretsDirectory: nil)
        // It has one, but the credentials of its simulators count only then.
        loader.simulatedKey = []
        loader.simulators = Dictionary(
            uniqueKeysWithValues: plan.types.map { ($0.name, "http://\($0.name).world") })
        var loaded = try loader.load()
        if let seconds = settings.admitsLanesAfter {
            loaded.configuration.outbox.engine = .sqliteAdmittingLate(after: .milliseconds(Int(seconds * 1000)))
            promises.coverage.visit("queue: lanes admitted by its owner")
        }
        return loaded
    }

    /// A former key is given until the gateway has started with the one after it.
    private var encryptionKeys: String {
        func key(_ number: Int) -> String { Promises.keyPrefix + hexadecimal(number, 64 - Promises.keyPrefix.count) }
        let former = (oldestKey..<keyChanges).map { "\"\(key($0))\"" }.joined(separator: ",")
        return #""encryptionKey":"\#(key(keyChanges))","previousEncryptionKeys":[\#(former)]"#
    }

    /// Takes effect with the next start.
    func changeKey() {
        // What is not encrypted with the latest one yet needs the one before.
        if plan.settings.changesKey, oldestKey == keyChanges { keyChanges += 1 }
    }

    /// Stops as after SIGTERM.
    func stop() {
        guard let run else { return }
        history.record("stops")
        stops += 1
        run.gateway.stop { false }
        noticeStop()
        guard self.run != nil else { return }
        self.run = nil
        rateCheck.waitsMayEnd()
        run.network.cutOff()
        endThreads()
    }

    /// The process ends here and now. What it has written stays, but if the power goes, only what it has synced stays
    /// for sure. What it still does has no effect.
    func die(_ cause: Death = .kill) {
        guard let run else { return }
        self.run = nil
        runs += 1
        run.network.cutOff()
        run.ingress.cutOff()
        dead.append(run)
        endLife(cause)
    }

    func endLife(_ cause: Death) {
        deathAfter = nil
        rateCheck.waitsMayEnd()
        switch cause {
        case .kill: disk.kill()
        case .powerCut: disk.powerCut()
        }
        noticeLoss()
    }

    /// Forgets what was killed.
    func endThreads() {
        for run in dead { run.abandon() }
        threads.abandon()
        dead = []
        beginThreads()
    }
}

/// Something that a closure hands out.
private final class Handed<Value>: @unchecked Sendable {
    // @unchecked: for the thread of the world only.
    var value: Value?
}
