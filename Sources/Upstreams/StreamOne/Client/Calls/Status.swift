/// The result of a call: `header.status` of a response (the specification's section 8).
package struct Status: Sendable, Equatable {
    /// What the gateway does with it.
    package enum Meaning: String, Sendable {
        case ok
        /// A fault inside the platform: the call may or may not have had an effect.
        case fault
        /// The timestamp is too far from the platform's clock.
        case clock
        /// Outside a session, the actor is rejected; inside one, the session has ended.
        case authentication
        case denied
        /// Blocked for a while after bad authentications.
        case rateLimited
        /// The platform accepts only reads at the moment.
        case readOnly
        case permanent
        /// As `permanent`; but if an earlier attempt of the same call got no usable response, that attempt took effect.
        case settledBefore
        /// The password has to be sent in its old form as well.
        case needsHash
        case loginRefused
        case sessionGone
    }

    let number: Int
    let name: String
    package let meaning: Meaning

    private init(_ number: Int, _ name: String, _ meaning: Meaning = .permanent) {
        self.number = number
        self.name = name
        self.meaning = meaning
    }

    /// Numbers that are in no list are rejections as well (Assumption A9).
    init(_ number: Int) { self = Self.known[number] ?? Self(number, "UNKNOWN") }

    /// Whether it reports that something does not exist.
    package var isAbsence: Bool { name.hasSuffix("_NOT_FOUND") }

    private static let known = Dictionary(uniqueKeysWithValues: all.map { ($0.number, $0) })

    static let all: [Status] = [
        .init(0, "OK", .ok),
        .init(1, "INTERNAL_ERROR", .fault),
        .init(2, "TIMESTAMP_OUT_OF_RANGE", .clock),
        .init(3, "AUTHENTICATION_FAILED", .authentication),
        .init(4, "ACCESS_DENIED", .denied),
        .init(5, "INVALID_ACTION"),
        .init(6, "INPUT_ERROR"),
        .init(7, "UNKNOWN_PARAMETER"),
        .init(8, "RATE_LIMITED", .rateLimited),
        .init(9, "INVALID_TIMEZONE"),
        .init(10, "API_IN_READONLY_MODE", .readOnly),
        .init(90, "INVALID_ACTION_TYPE"),
        .init(100, "JOB_NOT_FOUND"),
        .init(101, "WORKER_NOT_FOUND"),
        .init(102, "WORKER_INVALID"),
        .init(103, "JOB_INVALID_STATUS"),
        .init(104, "WORKER_WRONG_SERVER"),
        .init(105, "LIVE_TASK_NOT_FOUND"),
        .init(106, "LIVE_TASK_INVALID_STATUS"),
        .init(107, "WORKER_ALREADY_HAS_TYPE", .settledBefore),
        .init(108, "WORKER_DOES_NOT_HAVE_TYPE", .settledBefore),
        .init(109, "SERVER_ALREADY_HAS_WORKER", .settledBefore),
        .init(110, "FILE_NOT_FOUND"),
        .init(111, "FILE_WRONG_EXTENSION"),
        .init(112, "FILE_WRONG_SIZE"),
        .init(113, "FILE_LOCATION_NOT_FOUND"),
        .init(114, "FILE_SERVER_NOT_FOUND"),
        .init(115, "FILE_MOUNT_NOT_FOUND"),
        .init(116, "FILE_MOUNT_NOT_ON_SERVER"),
        .init(117, "FILE_LOCATION_EXISTS", .settledBefore),
        .init(118, "FILE_NO_SUITABLE_MOUNT"),
        .init(119, "FILE_COPY_FAILED"),
        .init(120, "ITEM_NOT_FOUND", .settledBefore),
        .init(121, "ITEM_INVALID_ACCOUNT"),
        .init(122, "ITEM_FILE_NOT_FOUND"),
        .init(123, "ITEM_FILE_WRONG_ITEM"),
        .init(124, "ITEM_NO_FILES"),
        .init(125, "ITEM_ALREADY_IN_CATEGORY", .settledBefore),
        .init(126, "ITEM_NOT_IN_CATEGORY", .settledBefore),
        .init(130, "SERVER_NOT_FOUND"),
        .init(131, "SERVER_MISSING_ROLE"),
        .init(132, "SERVER_NOT_PERMITTED"),
        .init(133, "SERVER_ROLE_ALREADY_ASSIGNED", .settledBefore),
        .init(134, "SERVER_ROLE_NOT_FOUND"),
        .init(135, "SERVER_ROLE_NOT_ASSIGNED", .settledBefore),
        .init(140, "FILE_CATEGORY_NOT_FOUND"),
        .init(141, "FILE_EMPTY"),
        .init(142, "FILE_NOT_EMPTY"),
        .init(143, "FILE_WRONG_MD5"),
        .init(144, "FILE_EXTERNAL_MOUNT_NOT_FOUND"),
        .init(145, "FILE_NOT_FOUND_ON_EXTERNAL_MOUNT"),
        .init(150, "EVENT_NOT_FOUND"),
        .init(160, "EVENT_HOOK_NOT_FOUND"),
        .init(161, "EVENT_HOOK_INVALID_TARGET"),
        .init(170, "EVENT_HOOK_TYPE_NOT_FOUND"),
        .init(171, "EVENT_HOOK_TYPE_INVALID"),
        .init(180, "EVENT_HOOK_LOG_NOT_FOUND"),
        .init(181, "EVENT_HOOK_LOG_WRONG_TYPE"),
        .init(182, "EVENT_HOOK_LOG_CANNOT_HANDLE"),
        .init(190, "UPLOAD_TOKEN_NOT_FOUND"),
        .init(200, "TRANSCODE_PROFILE_NOT_FOUND"),
        .init(201, "TRANSCODE_SOURCE_HAS_NO_VIDEO"),
        .init(202, "TRANSCODE_SOURCE_HAS_NO_AUDIO"),
        .init(210, "CATEGORY_NOT_FOUND", .settledBefore),
        .init(211, "CATEGORY_PARENT_WRONG"),
        .init(212, "CATEGORY_HAS_LINKED_ITEMS"),
        .init(220, "PLAYLIST_NOT_FOUND", .settledBefore),
        .init(230, "PLAYLIST_ENTRY_NOT_FOUND", .settledBefore),
        .init(240, "LIVESTREAM_NOT_FOUND"),
        .init(241, "LIVESTREAM_ALREADY_STARTED", .settledBefore),
        .init(242, "LIVESTREAM_NOT_YET_STARTED", .settledBefore),
        .init(243, "LIVESTREAM_TYPE_NOT_FOUND"),
        .init(250, "CUSTOMER_NOT_FOUND"),
        .init(260, "APPLICATION_NOT_FOUND"),
        .init(261, "APPLICATION_NOT_PERMITTED"),
        .init(262, "APPLICATION_ROLE_ALREADY_ASSIGNED", .settledBefore),
        .init(263, "APPLICATION_ROLE_NOT_ASSIGNED", .settledBefore),
        .init(270, "ROLE_NOT_FOUND"),
        .init(271, "TOKEN_NOT_FOUND"),
        .init(272, "ROLE_ALREADY_HAS_TOKEN", .settledBefore),
        .init(273, "ROLE_DOES_NOT_HAVE_TOKEN", .settledBefore),
        .init(274, "ROLE_NOT_PERMITTED"),
        .init(275, "ROLE_STILL_USED"),
        .init(280, "SESSION_NEEDS_V2_HASH", .needsHash),
        .init(281, "SESSION_INVALID", .loginRefused),
        .init(282, "SESSION_NOT_FOUND", .sessionGone),
        .init(290, "ACCOUNT_NOT_FOUND"),
        .init(291, "ACCOUNT_ALREADY_HAS_PROFILE_GROUP", .settledBefore),
        .init(292, "ACCOUNT_DOES_NOT_HAVE_PROFILE_GROUP", .settledBefore),
        .init(300, "PROFILE_GROUP_NOT_FOUND"),
        .init(310, "USER_NOT_FOUND"),
        .init(311, "USER_NOT_PERMITTED"),
        .init(312, "USER_ROLE_ALREADY_ASSIGNED", .settledBefore),
        .init(313, "USER_ROLE_NOT_ASSIGNED", .settledBefore),
        .init(314, "USER_PASSWORD_CHANGE_INVALID"),
        .init(315, "USER_PASSWORD_RESET_NOT_FOUND_OR_EXPIRED"),
        .init(316, "USER_USERNAME_ALREADY_EXISTS", .settledBefore),
        .init(320, "SCHEDULE_NOT_FOUND", .settledBefore),
        .init(325, "SCHEDULE_ALREADY_HAS_CATEGRY", .settledBefore),
        .init(326, "SCHEDULE_DOES_NOT_HAVE_CATEGRY", .settledBefore),
        .init(330, "PLAYER_NOT_FOUND", .settledBefore),
        .init(331, "PLAYER_ALREADY_HAS_ORIGIN", .settledBefore),
        .init(332, "PLAYER_DOES_NOT_HAVE_ORIGIN", .settledBefore),
        .init(340, "ORIGIN_NOT_FOUND"),
        .init(350, "PLATFORM_SUPPORT_TASK_NOT_FOUND"),
        .init(360, "JOB_TYPE_NOT_FOUND"),
        .init(361, "LIVE_TASK_TYPE_NOT_FOUND"),
        .init(370, "PROFILE_NOT_FOUND"),
        .init(371, "ITEM_FILE_FORMAT_NOT_FOUND"),
        .init(372, "ITEM_TYPE_NOT_FOUND"),
        .init(373, "AUDIO_CODEC_NOT_FOUND"),
        .init(374, "VIDEO_CODEC_NOT_FOUND"),
        .init(375, "VIDEO_CODEC_PROFILE_NOT_FOUND"),
        .init(376, "PROFILE_IS_OF_SPECIFIC_ACCOUNT"),
        .init(377, "PROFILE_GROUP_ALREADY_HAS_PROFILE", .settledBefore),
        .init(378, "PROFILE_GROUP_DOES_NOT_HAVE_PROFILE", .settledBefore),
        .init(379, "PROFILE_INVALID_HEIGHT_FOR_INTERLACED"),
        .init(380, "SECURITY_PROFILE_NOT_FOUND"),
        .init(381, "SECURITY_RULE_NOT_VALID"),
        .init(382, "SECURITY_RULE_NOT_FOUND", .settledBefore),
        .init(390, "STATS_RANGE_INVALID"),
        .init(391, "STATS_RESOLUTION_INVALID"),
        .init(392, "STATS_SCOPE_INVALID"),
        .init(400, "CLIENT_GROUP_NOT_FOUND"),
        .init(401, "CLIENT_NOT_FOUND"),
        .init(402, "CLIENT_GROUP_ALREADY_HAS_CLIENT", .settledBefore),
        .init(403, "CLIENT_GROUP_DOES_NOT_HAVE_CLIENT", .settledBefore),
        .init(410, "RECORD_TASK_NOT_FOUND"),
        .init(411, "RECORD_TASK_INVALID_STATUS"),
        .init(420, "FTP_USER_ALREADY_EXISTS", .settledBefore),
        .init(421, "FTP_USER_NOT_FOUND", .settledBefore),
        .init(430, "SSO_SERVICE_NOT_FOUND"),
        .init(431, "USER_ALREADY_HAS_SSO_TOKEN", .settledBefore),
        .init(432, "USER_HAS_NO_SSO_TOKEN", .settledBefore),
        .init(433, "SSO_RESPONSE_INVALID"),
        .init(434, "SSO_TOKEN_UNKNOWN"),
        .init(440, "ITEM_NO_POSTER_ARCHIVE"),
        .init(441, "ITEM_POSTER_INDEX_NOT_FOUND"),
    ]
}
