"""Files of thresholds in the forms that others use, made up."""

from __future__ import annotations

import json

NHC = """
# made up
 * || check_hw_ib 400 mlx5_ib0:1
 * || check_gpu_count 8
 * || check_gpu_bw 48 335
 #* || check_gpu_bw 1 1
 * || check_nccl_allreduce 431.0 1 16G $AZ_NHC_ROOT/topofiles/t.xml
 * || check_nccl_allreduce 430 1 /opt/t.xml 8G
 * || check_ib_bw_gdr 360
 * || check_nccl_allreduce_ib_loopback 40.0 1 16G
 * || check_gpu_bw
"""
ORACLE = """
shapes = {
    "BM.GPU.H100.8": {
        "hca": "=mlx5_0,mlx5_1",
        "threshold": 440,
        "ib_write_bw": 192
    },
    "BM.Unheard.1": { "threshold": 7 },
}
"""
AWS = """
  case "$1" in
    p5.48xlarge)     echo 800 ;;
    p9.48xlarge) echo 1 ;;
    *) echo 0 ;;
  esac
"""
GOOGLE = """
env:
    INSTANCE_TYPE: "a3-ultragpu-8g"
    END_MESSAGE_SIZE: "8G"
    NHOSTS: "2"
    BANDWIDTH_THRESHOLD: "250"
"""
AICR = """
spec:
  criteria:
    service: eks
    accelerator: gb200
  validation:
      constraints:
        - name: K8s.server.version
          value: ">= 1.34"
        - name: nccl-all-reduce-bw-net
          value: ">= 40"
        # a comment
        - name: nccl-all-reduce-bw-nvls
          value: ">= 500"
"""
CVS = json.dumps({
    "rccl": {
        "_comment": "MI300X", "mpi_params": {"no_of_nodes": "1"},
        "results": {
            "scale_up": {"all_reduce_perf-float-8": {"8589934592": {"bus_bw": "304"}}},
            "all_gather_perf": {"bus_bw": {"1073741824": "250.5", "8589934592": "<changeme>"}},
        },
        "transferbench": {"avg_gpu_to_gpu_p2p_unidir_bw": "33.9"},
    }
})  # fmt: skip
SUPERBENCH = """
version: v0.9
superbench:
  rules:
    nccl:
      function: value
      criteria: lambda x:x<400
      categories: NCCL
      metrics:
        - nccl-bw:default/allreduce_8589934592_busbw:\\d+
    drift:
      function: variance
      criteria: lambda x:x<-0.05
      metrics:
        - mem-bw/H2D_Mem_BW:\\d+
"""
DCGM = "dcgmi diag -r 3 -p memory_bandwidth.minimum_bandwidth=2000000;pcie.h2d_d2h_single_pinned.min_bandwidth=20\n"
TABLE = "system,pattern,value,size\nhgx-h200-8,allreduce,431,16 GiB\n"

SAMPLES = (NHC, ORACLE, AWS, GOOGLE, AICR, CVS, SUPERBENCH, DCGM, TABLE)
