import GRDB
import GRDBSQLite
import Logging
enum PlaceholderPosternStore {}
