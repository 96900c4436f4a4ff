import Foundation
import PosternCore
import PosternScenarios
import PosternUpstream

@testable import PosternGateway
@testable import PosternHTTP
@testable import PosternStore

/// What an operator has had erased: it is not sent again, and in no file of the store.
final class ErasureWatch {
    private unowned let world: World

    init(_ world: World) { self.world = world }

    /// Erases a message by a value in its payload that has its mark: one that is being sent, if there is any.
    func erase(_ random: SeededRandom) {
        func mayBeErased(_ entry: Expectations.Entry) -> Bool {
            !entry.ids.isEmpty && !entry.isNeeded && !entry.isWaived && !entry.isKnownAgain && entry.payload != nil
                && entry.whole == nil
        }
        var candidates = random.chance(0.5) ? world.run?.network.underWay.filter(mayBeErased) ?? [] : []
        if candidates.isEmpty { candidates = world.expectations.entries.suffix(60).filter(mayBeErased) }
        guard !candidates.isEmpty else { return }
        let entry = random.pick(candidates)
        guard let payload = entry.payload, let place = Self.place(of: entry.mark, in: payload) else { return }
        for erased in [entry] + world.callbacks.entries(about: entry.ids) {
            (erased.isExempt, erased.isErased) = (true, true)
        }
        let body =
            #"{"upstream":"\#(entry.upstream)","pointer":\#(JSONEscapes.quoted(place.pointer)),"value":\#(place.value)}"#
        // A request without a response may have stored another copy.
        let isOnly = entry.ids.count == 1 && entry.unanswered == 0
        Operator.post("/v1/messages/erase", body, in: world) { [self] response, text in
            guard response.status == 200 else { return }
            world.promises.coverage.visit("message: erased")
            for id in entry.ids { check(entry, id) }
            guard isOnly, entry.unanswered == 0, !entry.isPending else { return }
            entry.isCancelled = true
            let found = world.weather.quietly { traces(of: payload) }
            if !found.isEmpty { world.promises.fail("what is erased is in no file", "\(entry.mark) is in \(found)") }
        }
    }

    private func check(_ entry: Expectations.Entry, _ id: MessageID) {
        guard let outbox = world.run?.gateway.outbox else { return }
        world.weather.quietly {
            guard let record = (try? outbox.message(id, payload: true)) ?? nil else { return }
            if record.state == .queued || record.payload != nil {
                world.promises.fail("what is erased is gone", "\(entry.mark), \(id), is \(record.state.name)")
            }
            let reports = (try? outbox.messages(MessageFilter(key: "\(id)"), after: nil, limit: 100, payload: true))
            // Of a message that was delivered nothing is left by which it could be found, and its event has nothing of it.
            if let report = reports?.messages.first(where: { $0.payload?.hasBytes(of: entry.mark) ?? false }) {
                world.promises.fail("what is erased is gone", "\(report.id) still reports \(entry.mark), \(id)")
            }
        }
    }

    private func traces(of payload: String) -> [String] {
        StoreFile.tails.filter { tail in
            let bytes = (try? Files.read(world.path + tail, for: "")) ?? nil
            return bytes.map { Data($0).range(of: Data(payload.utf8)) != nil } ?? false
        }
    }

    /// A pointer to a text or a number that has the mark, and its JSON.
    private static func place(of mark: String, in payload: String) -> (pointer: String, value: String)? {
        func find(_ value: JSONValue, at pointer: String) -> (pointer: String, value: String)? {
            switch value.kind {
            case .object:
                for member in value.members {
                    if let found = find(member.value, at: pointer + JSONPointer.member(member.key)) { return found }
                }
            case .array:
                for (index, element) in value.elements.enumerated() {
                    if let found = find(element, at: "\(pointer)/\(index)") { return found }
                }
            case .string:
                let text = String(decoding: value.bytes, as: UTF8.self)
                if text.contains(mark) { return (pointer, text) }
            case .number, .true, .false, .null: break
            }
            return nil
        }
        let found = JSONParser.ofThisThread.parse(Array(payload.utf8)) { find($0, at: "") }
        return (try? found.get()) ?? nil
    }
}
