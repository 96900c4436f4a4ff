import Foundation
import PosternTestKit
import Testing

/// The store's SQL is written in the dialect that SQLite and PostgreSQL share, so that each statement is written once.
/// `make dialect` shows whether PostgreSQL agrees.
@Suite struct SharedDialectTests {
    /// Parts of the paths of sources that know SQLite only. `scripts/check-dialect.py` reads this list.
    private static let ofSQLite = ["SQLite", "Migrations.swift"]

    /// What only one of the two understands, or understands differently.
    private static let constructs: [(pattern: String, advice: String, example: String)] = [
        (#"\bPRAGMA "#, "belongs to SQLite's engine", "PRAGMA freelist_count"),
        (#"\bsqlite_\w+"#, "belongs to SQLite's engine", "SELECT 1 FROM sqlite_master"),
        (#"\bBEGIN (DEFERRED|IMMEDIATE|EXCLUSIVE)\b"#, "begin with `SQL.transaction`", "BEGIN IMMEDIATE"),
        (
            #"\bOR (REPLACE|IGNORE|ABORT|FAIL|ROLLBACK)\b|\bREPLACE INTO\b"#, "write ON CONFLICT",
            "INSERT OR IGNORE INTO kinds (name) VALUES (?)"
        ),
        (
            #"\bON CONFLICT DO UPDATE\b"#, "name the columns of the key",
            "INSERT INTO kinds (name) VALUES (?) ON CONFLICT DO UPDATE SET name = ''"
        ),
        (
            #"\b(iif|ifnull|zeroblob|hex|typeof|printf|changes|last_insert_rowid|unixepoch|julianday|strftime|instr|char|total|group_concat|octet_length|greatest|least)\s*\("#,
            "there is no such function in both; coalesce and CASE are", "SELECT ifnull(max(batch), 0) FROM store"
        ),
        (
            #"\b(min|max)\s*\((?:[^(),]|\((?:[^()]|\([^()]*\))*\))*,"#,
            "write CASE: with two values, only SQLite has it",
            "SELECT max(startedAtMs, coalesce(endedAtMs, 0)) FROM attempts"
        ),
        (#"\b[xX]'"#, "bind the bytes", "UPDATE queue_# SET payload = x''"),
        (
            #"\bINDEXED BY\b|\bNOT INDEXED\b|\browid\b|\bGLOB\b|\bREGEXP\b|\bMATCH\b|\bNOCASE\b|=="#,
            "only SQLite has it",
            "SELECT ids FROM attempts INDEXED BY attemptsUnderWay"
        ),
        (#"\bI?LIKE\b"#, "SQLite ignores case, PostgreSQL does not", "SELECT 1 FROM state WHERE key LIKE 'a%'"),
        (#"^(?:[^'"]|'[^']*')*""#, "a text has single quotes, a name none", #"SELECT 1 FROM state WHERE key = "a""#),
        (
            #"\bIS (?!(NOT )?(NULL|TRUE|FALSE|DISTINCT FROM)\b)"#, "write IS NOT DISTINCT FROM",
            "SELECT 1 FROM queue_# WHERE progress IS NOT ?"
        ),
        (
            #"\bis[A-Z]\w* *(=|<>) *[01]\b"#, "columns `is…` are Boolean in PostgreSQL: write TRUE, FALSE, or NOT",
            "UPDATE lanes SET isHeld = 0"
        ),
        (
            #"\b(WHERE|AND|OR|NOT|WHEN) \(?\w+ & (?>\?\d*|\w+)\)?+(?! *(=|<>))"#,
            "an integer is not a truth value: compare it",
            "SELECT 1 FROM queue_# WHERE tried & ?"
        ),
        (#"(?<!\()\b\w+ & (\?\d*|\w+) *(=|<>)"#, "add parentheses", "SELECT 1 FROM queue_# WHERE tried & ? = 0"),
        (
            #"\b(FROM|JOIN) \((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\)(?! AS \w)"#,
            "name the subquery: before version 16, PostgreSQL requires it", "SELECT count(*) FROM (SELECT 1 FROM store)"
        ),
        (#"\bLIMIT (-|\S+,)"#, "write LIMIT … OFFSET …", "SELECT 1 FROM store LIMIT 1, 2"),
        (#"\?(?!\d)(.*)\?\d|\?\d(.*)\?(?!\d)"#, "number all parameters, or none", "SELECT ?, ?1"),
    ]

    @Test func statements_useOnlyWhatBothEnginesUnderstand() throws {
        let folder = Fixture.top + "/Sources/PosternStore/"
        let files = try #require(FileManager.default.enumerator(atPath: folder)).compactMap { $0 as? String }
        let sources = files.filter { file in file.hasSuffix(".swift") && !Self.ofSQLite.contains { file.contains($0) } }
        var count = 0
        for file in sources.sorted() {
            for statement in Self.statements(in: try String(contentsOfFile: folder + file, encoding: .utf8)) {
                count += 1
                for advice in Self.problems(of: statement) {
                    Issue.record("\(file): \(advice), or write Statement(sqlite:postgres:): \(statement)")
                }
            }
        }
        #expect(count > 150, "the search for statements finds few")
    }

    @Test(arguments: constructs.map(\.example)) func construct_isFound_inAStatement(example: String) {
        let quotes = "\"\"\""
        let source = "try sql.run(\n    \(quotes)\n    \(example)\n    \(quotes))"
        #expect(Self.statements(in: source) == [example])
        #expect(!Self.problems(of: example).isEmpty)
    }

    @Test func text_forSQLiteAlone_isNotExamined() {
        let source =
            #"Statement(sqlite: "SELECT 1 FROM sqlite_master", postgres: "SELECT 2 FROM pg_class") // "SELECT 3""#
        #expect(Self.statements(in: source) == ["SELECT 2 FROM pg_class"])
    }

    private static func problems(of statement: String) -> [String] {
        constructs.compactMap { pattern, advice, _ in
            statement.range(of: pattern, options: .regularExpression) == nil ? nil : advice
        }
    }

    /// The string literals that are SQL, each on one line, without those that are labelled `sqlite:`.
    private static func statements(in source: String) -> [String] {
        let literal = #"//[^\n]*|(sqlite:\s*)?(?:"""\n([\s\S]*?)\n\s*"""|"((?:[^"\\\n]|\\.)*)")"#
        let verbs = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH ", "BEGIN", "REPLACE ", "PRAGMA "]
        let text = NSString(string: source)
        let found = (try? NSRegularExpression(pattern: literal))?
            .matches(in: source, range: NSRange(location: 0, length: text.length))
        return (found ?? []).compactMap { match in
            guard match.range(at: 1).location == NSNotFound else { return nil }
            let range = match.range(at: 2).location == NSNotFound ? match.range(at: 3) : match.range(at: 2)
            guard range.location != NSNotFound else { return nil }
            let statement = text.substring(with: range).replacing("\\\"", with: "\"")
                .split(whereSeparator: \.isWhitespace).joined(separator: " ")
            return verbs.contains { statement.hasPrefix($0) } ? statement : nil
        }
    }
}
