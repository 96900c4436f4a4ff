import PosternStoreTrial

FaultCampaign.main(Array(CommandLine.arguments.dropFirst()))
