// Runs an ONNX model by ONNX Runtime: node run_onnx.js REQUEST.json, with
// {"runtime": folder of node_modules, "model": file, "inputs": [{name, type, shape, file}], "output": file}.
// Numbers are raw little-endian bytes in the files.
const fs = require("fs");
const path = require("path");

const request = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const ort = require(path.join(path.resolve(request.runtime), "node_modules", "onnxruntime-node"));
const arrays = {float32: Float32Array, float64: Float64Array, int64: BigInt64Array};

(async () => {
  const session = await ort.InferenceSession.create(request.model, {intraOpNumThreads: 1, logSeverityLevel: 3});
  const feeds = {};
  for (const input of request.inputs) {
    const bytes = fs.readFileSync(input.file);
    const copy = new ArrayBuffer(bytes.length);
    new Uint8Array(copy).set(bytes);
    feeds[input.name] = new ort.Tensor(input.type, new arrays[input.type](copy), input.shape);
  }
  const results = await session.run(feeds);
  const result = results[session.outputNames[0]];
  fs.writeFileSync(request.output, Buffer.from(result.data.buffer, result.data.byteOffset, result.data.byteLength));
  console.log(JSON.stringify({names: session.outputNames, shape: result.dims, type: result.type}));
})().catch((error) => {
  console.error(String(error));
  process.exit(1);
});
