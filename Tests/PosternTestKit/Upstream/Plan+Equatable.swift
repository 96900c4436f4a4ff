import PosternCore
public import PosternUpstream

/// Equal plans do the same with the messages. What they change in the state is computed when it is stored.
extension Plan: Equatable {
    public static func == (left: Plan, right: Plan) -> Bool {
        switch (left, right) {
        case (.send(let left, let leftCount), .send(let right, let rightCount)):
            left == right && leftCount == rightCount
        case (
            .settle(let leftCount, let left, let leftReason, let leftSteps, _),
            .settle(let rightCount, let right, let rightReason, let rightSteps, _)
        ):
            leftCount == rightCount && left == right && leftReason == rightReason && leftSteps == rightSteps
        case (.wait(let left, let leftUntil), .wait(let right, let rightUntil)):
            left == right && leftUntil == rightUntil
        case (.park, .park): true
        default: false
        }
    }
}
