// A Node server that refuses by the head: 413 to all, with nothing of the body read. `node refusing.js PORT`
const http = require("node:http");

http
  .createServer((request, response) => {
    response.writeHead(413, { "Content-Length": "8", Connection: "close" });
    response.end("too much");
  })
  .listen(Number(process.argv[2]), "127.0.0.1");
