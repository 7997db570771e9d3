"""--backend mpi: processes give the results of threads, to the bit. One process prints for all, errors too."""

import json
import subprocess
from pathlib import Path

from command import COMMAND, REPOSITORY, UTF8, CommandTest

MPIRUN = REPOSITORY / "tools" / "mpirun.sh"
LAYER = ["--experts", 16, "--top-k", 4, "--hidden", 48, "--intermediate", 40, "--min-segment", 4]
SUMS = "--sum-in-nodes"
SMALL = ["--scenario", "concentrated:0.9:1", "--tokens", 48, "--repeat", 1, "--imbalance-threshold", 1.3, *LAYER]
# A planner's results that depend only on its decisions, whatever the backend.
DECIDED = ["planner", "checksum", "rank_loads", "transfers", "reason", "chunks", "recomputed_fraction", "peak_bytes",
           "dispatch_bytes", "combine_bytes", "transfer_bytes", "max_abs_error"]  # fmt: skip


class Mpi(CommandTest):
    def mpi(self, ranks, *words, status=0):
        words = [MPIRUN, "-n", str(ranks), COMMAND, *map(str, words)]
        done = subprocess.run(words, cwd=self.folder, env=UTF8, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def decided(self, text):
        return [[planner[key] for key in DECIDED] for planner in json.loads(text)["planners"]]

    def test_processes_give_what_threads_give_under_every_planner(self):
        for ranks in [2, 3, 4, 8]:
            for more in [[], ["--backward"], ["--backward", "--budget", "190KiB"]]:
                with self.subTest(ranks=ranks, more=more):
                    words = ["run", *SMALL, *more, "--json"]
                    threads = self.call(*words, "--ranks", ranks)
                    self.assertEqual(threads.returncode, 0, threads.stderr)
                    processes = self.mpi(ranks, *words, "--backend", "mpi")
                    self.assertEqual(self.decided(processes.stdout), self.decided(threads.stdout))
                    self.assertEqual(json.loads(processes.stdout)["backend"], "mpi")

    def test_two_levels_change_no_bit_and_send_less_between_nodes(self):
        words = ["run", *SMALL, "--backward", "--nodes", 2, "--json"]
        one = self.call(*words, "--ranks", 6)
        for done in [
            self.call(*words, "--ranks", 6, "--two-levels"),
            self.mpi(6, *words, "--two-levels", "--backend", "mpi"),
        ]:
            for before, after in zip(
                json.loads(one.stdout)["planners"], json.loads(done.stdout)["planners"], strict=True
            ):
                with self.subTest(planner=after["planner"]):
                    self.assertEqual(after["checksum"], before["checksum"])
                    self.assertLess(after["dispatch_bytes_between_nodes"], before["dispatch_bytes_between_nodes"])
                    self.assertLessEqual(after["transfer_bytes_between_nodes"], before["transfer_bytes_between_nodes"])
                    self.assertLessEqual(after["most_bytes_of_a_node"], after["bytes_between_nodes"])

    def test_sums_in_nodes_bring_fewer_bytes_home(self):
        words = ["run", *SMALL, "--backward", "--nodes", 2, "--two-levels", "--json"]
        without, threads = (json.loads(self.call(*words, "--ranks", 6, *more).stdout) for more in [[], [SUMS]])
        processes = json.loads(self.mpi(6, *words, SUMS, "--backend", "mpi").stdout)
        self.assertEqual((without["sum_in_nodes"], threads["sum_in_nodes"]), (False, True))
        for before, after, other in zip(without["planners"], threads["planners"], processes["planners"], strict=True):
            with self.subTest(planner=after["planner"]):
                self.assertEqual(other["checksum"], after["checksum"])
                self.assertEqual(other["bytes_between_nodes"], after["bytes_between_nodes"])
                self.assertLess(after["bytes_between_nodes"], before["bytes_between_nodes"])

    def test_ranks_that_read_different_files_are_refused(self):
        folders = [Path(self.folder) / name for name in "ab"]
        for folder, step in zip(folders, [50, 1563], strict=True):
            folder.mkdir()
            (folder / "t.npz").write_bytes((REPOSITORY / f"data/tiny-moe/routing_step{step}.npz").read_bytes())
        words = [COMMAND, "run", "--trace", "t.npz", "--layer", "1", "--backend", "mpi", "--repeat", "1",
                 "--hidden", "16", "--intermediate", "16"]  # fmt: skip
        jobs = [["-n", "1", "-wdir", folder, *words] for folder in folders]
        done = subprocess.run([MPIRUN, *jobs[0], ":", *jobs[1]], env=UTF8, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        message = "--trace: t.npz is not the same on ranks 0 and 1; allowed: the same file on every host"
        self.assertIn(message, done.stderr)

    def test_processes_without_a_backend_are_not_one_job(self):
        message = "--backend: is missing, and mpirun has started 2 processes; allowed: mpi"
        self.assertIn(message, self.mpi(2, "run", *SMALL, status=2).stderr)
        self.assertEqual(self.mpi(1, "run", *SMALL, "--ranks", 2).stderr, "")

    def test_hosts_are_found(self):
        result = json.loads(self.mpi(3, "run", *SMALL, "--backend", "mpi", "--nodes", "hosts", "--json").stdout)
        self.assertEqual((result["nodes"], result["planners"][0]["bytes_between_nodes"]), (1, 0))

    def test_one_process_prints_and_writes(self):
        done = self.mpi(3, "run", *SMALL, "--backend", "mpi", "--timeline", "mpi.json")
        self.assertEqual((done.stdout.count("ranks are processes, on MPI"), done.stderr), (1, ""))
        self.call("run", *SMALL, "--ranks", 3, "--timeline", "threads.json")
        slices = [
            sorted((event["pid"], event["name"]) for event in self.file(file)["traceEvents"] if event["ph"] == "X")
            for file in ["mpi.json", "threads.json"]
        ]
        self.assertEqual(slices[0], slices[1])

    def test_bench_takes_its_ranks_from_the_job(self):
        done = self.mpi(2, "bench", "--backend", "mpi", "--scenarios", "0.95:1", "--tokens", 32, "--pairs", 2, *LAYER,
                        "--json")  # fmt: skip
        self.assertEqual(json.loads(done.stdout)["ranks"], 2)

    def test_without_mpirun_there_is_one_rank(self):
        done = self.call("run", *SMALL, "--backend", "mpi", "--json")
        self.assertEqual((json.loads(done.stdout)["ranks"], done.returncode), (1, 0))
        self.assertEqual(done.stderr, "note: one rank: mpirun has started no others\n")

    def test_unlike_command_lines_are_no_job(self):
        run = [COMMAND, "run", "--backend", "mpi", *map(str, SMALL)]
        words = [MPIRUN, "-n", "1", *run, ":", "-n", "1", *run, "--seed", "2"]
        done = subprocess.run(words, cwd=self.folder, env=UTF8, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("command line: is not the same on ranks 0 and 1", done.stderr)

    def test_what_is_wrong_is_said_once(self):
        for words, status, message in [
            (["run", *SMALL, "--ranks", 5], 2, "--ranks: 5, but mpirun has started 3 processes; allowed: 3, or"),
            (["run", *SMALL, "--trace", "no.npz"], 2, "--scenario: cannot be combined with --trace"),
            (["run", "--trace", "no.npz"], 3, "no.npz"),
            (["run", *SMALL, "--two-levels"], 2, "--two-levels: needs --nodes or --topology"),
            (["run", *SMALL, "--nodes", 2], 2, "--nodes: 3 ranks do not divide evenly over 2 nodes"),
            (["bench", "--over-budget", "50%"], 2, "--over-budget: is measured with ranks as threads"),
        ]:
            with self.subTest(words=words):
                errors = self.mpi(3, *words, "--backend", "mpi", status=status).stderr
                self.assertEqual(errors.count("evenkeel: "), 1, errors)
                self.assertNotIn("failed: ", errors.splitlines()[0])
                self.assertIn(message, errors)
