import PosternProcess

/// Rows with aligned columns for terminals; two blanks between columns and none at the end of a line. Control
/// characters in a cell are escaped.
struct TextTable {
    struct Column {
        let title: String
        /// Numbers are right-aligned.
        var isNumber = false
    }

    private let columns: [Column]
    private var rows: [[String]] = []

    init(_ columns: [Column]) { self.columns = columns }

    mutating func add(_ cells: [String]) {
        precondition(cells.count == columns.count, "a cell for each column")
        rows.append(cells.map { $0.printable() })
    }

    var text: String {
        let all = [columns.map(\.title)] + rows
        let widths = columns.indices.map { index in all.map { $0[index].count }.max() ?? 0 }
        return all.map { cells in
            var line = ""
            for (index, cell) in cells.enumerated() {
                let filling = String(repeating: " ", count: widths[index] - cell.count)
                line += (index == 0 ? "" : "  ") + (columns[index].isNumber ? filling + cell : cell + filling)
            }
            while line.last == " " { line.removeLast() }
            return line
        }.joined(separator: "\n")
    }
}

extension TextTable.Column: ExpressibleByStringLiteral {
    init(stringLiteral title: String) { self.init(title: title) }
    static func number(_ title: String) -> Self { Self(title: title, isNumber: true) }
}
