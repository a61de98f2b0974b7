// BullMQ as its documents show it: node bullmq.cjs NAME REDIS GPU AT_ONCE work|submit|results WORDS...
const http = require('node:http');
const { Queue, Worker, Job } = require('bullmq');

const [, , , redis, gpu, atOnce, verb, ...words] = process.argv;
const connection = { port: Number(new URL(redis).port) };
const queue = new Queue('bench', { connection });
const agent = new http.Agent({ keepAlive: true, maxSockets: Number(atOnce) });

function run(job) {
  return new Promise((resolve, reject) => {
    const body = JSON.stringify(job.data.payload);
    const headers = { 'Content-Type': 'application/json', 'Content-Length': body.length };
    const request = http.request(`${gpu}?${job.data.id}`, { method: 'POST', agent, headers }, (reply) => {
      let text = '';
      reply.on('data', (piece) => { text += piece; });
      reply.on('end', () => resolve(text));
    });
    request.on('error', reject);
    request.end(body);
  });
}

async function main() {
  if (verb === 'work') {
    // The lock's length and the look for stalled jobs are those of the comparison after a crash; see docs/benchmarks.md.
    new Worker('bench', run, { connection, concurrency: Number(atOnce), lockDuration: 4000, stalledInterval: 2000 });
    return;
  }
  if (verb === 'submit') {
    const payload = JSON.parse(process.env.PAYLOAD);
    const ids = Array.from({ length: Number(words[1]) }, (_, at) => `${words[0]}${at + 1}`);
    await queue.addBulk(ids.map((id) => ({ name: 'run', data: { id, payload }, opts: { jobId: id } })));
  } else {
    const found = {};
    for (const id of words) found[id] = (await Job.fromId(queue, id))?.returnvalue;
    console.log(JSON.stringify(found));
  }
  process.exit();
}

main();
