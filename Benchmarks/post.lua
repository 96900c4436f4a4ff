-- wrk script: POSTs the lines of a file in turn and prints one JSON object at the end.
-- usage: wrk … -s post.lua URL -- BODIES [NAME:VALUE …]

local requests, next = {}, 0

function init(arguments)
   wrk.method = "POST"
   wrk.headers["Content-Type"] = "application/json"
   for index = 2, #arguments do
      local name, value = arguments[index]:match("^([^:]+):%s*(.*)$")
      wrk.headers[name] = value
   end
   for line in io.lines(arguments[1]) do
      requests[#requests + 1] = wrk.format(nil, nil, nil, line)
   end
   -- Threads start at different lines, so that they do not send the same event at the same time.
   math.randomseed(os.time())
   next = math.random(#requests)
end

function request()
   next = next % #requests + 1
   return requests[next]
end

function done(summary, latency, _)
   io.write(string.format(
      '\n{"seconds":%.3f,"requests":%d,"perSecond":%.1f,"refused":%d,"broken":%d,"p50Ms":%.3f,"p99Ms":%.3f,"p999Ms":%.3f,"maxMs":%.3f}\n',
      summary.duration / 1e6, summary.requests, summary.requests / (summary.duration / 1e6), summary.errors.status,
      summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout,
      latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency:percentile(99.9) / 1e3, latency.max / 1e3))
end
