import ArgumentParser
import PosternApp
@main struct Postern { static func main() { print("postern") } }
