import PosternWorld

Campaign.main(Array(CommandLine.arguments.dropFirst()))
