// Who we are, from what each launcher leaves in the environment.
#include "bilevel/distributed/rank_place.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fmt/format.h>

#include <map>
#include <stdexcept>
#include <string>

#include "tests/temporary_folder.h"

namespace bilevel::test {
namespace {

using Variables = std::map<std::string, std::string>;

RankPlace place_of(const Variables& variables) {
  return rank_from([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}
std::string refusal(const Variables& variables) {
  try {
    (void)place_of(variables);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "none";
}

TEST(RankPlace, a_process_without_variables_is_alone) {
  const RankPlace place = place_of({});
  EXPECT_TRUE(place.alone());
  EXPECT_EQ(place.launcher, "");
  EXPECT_TRUE(place_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).alone());
}

TEST(RankPlace, a_shell_of_a_slurm_allocation_is_alone) {
  EXPECT_TRUE(place_of({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}).alone());
}

TEST(RankPlace, torchruns_ranks_meet_at_its_agent) {
  const RankPlace place = place_of({{"RANK", "3"},
                                    {"WORLD_SIZE", "4"},
                                    {"LOCAL_RANK", "1"},
                                    {"LOCAL_WORLD_SIZE", "2"},
                                    {"MASTER_ADDR", "node1"},
                                    {"MASTER_PORT", "29400"},
                                    {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.size, 4);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_size, 2);
  EXPECT_FALSE(place.one_machine);
  EXPECT_EQ(place.address, "node1");
  EXPECT_EQ(place.port, 29400);
  EXPECT_TRUE(place.agent_listens);
  EXPECT_EQ(place.folder, "");
  EXPECT_EQ(place.launcher, "torchrun");
}

TEST(RankPlace, own_launcher_names_a_folder_and_opens_no_port) {
  const RankPlace place = place_of({{"RANK", "1"},
                                    {"WORLD_SIZE", "2"},
                                    {"LOCAL_RANK", "1"},
                                    {"LOCAL_WORLD_SIZE", "2"},
                                    {"BILEVEL_RENDEZVOUS", "/somewhere"}});
  EXPECT_TRUE(place.one_machine);
  EXPECT_EQ(place.folder, "/somewhere");
  EXPECT_EQ(place.port, 0);
}

TEST(RankPlace, mpirun_on_one_machine_uses_its_session_folder) {
  const TemporaryFolder session;
  Variables variables = {{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "4841"},          {"PMIX_SERVER_TMPDIR", session / ""}};
  EXPECT_EQ(place_of(variables).folder, session / "" + "/bilevel-4841");
  EXPECT_EQ(place_of(variables).rank, 1);
  variables.erase("PMIX_SERVER_TMPDIR");
  EXPECT_NE(place_of(variables).folder.find(fmt::format("bilevel-{}-mpirun-4841", ::getuid())),
            std::string::npos);
}

TEST(RankPlace, mpirun_on_several_machines_asks_for_an_address) {
  Variables variables = {{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_EQ(refusal(variables),
            "mpirun started 4 ranks on several machines, and the environment has no MASTER_ADDR: give the "
            "address of "
            "rank 0's machine and a port that is free there, as in mpirun -x MASTER_ADDR=node1 -x "
            "MASTER_PORT=29400");
  variables["MASTER_ADDR"] = "node1";
  variables["MASTER_PORT"] = "29400";
  EXPECT_EQ(place_of(variables).port, 29400);
}

TEST(RankPlace, srun_derives_address_and_port_from_the_job) {
  Variables variables = {{"SLURM_STEP_ID", "2"},        {"SLURM_JOB_ID", "100"},
                         {"SLURM_STEP_NUM_TASKS", "6"}, {"SLURM_NTASKS", "8"},
                         {"SLURM_PROCID", "5"},         {"SLURM_LOCALID", "1"},
                         {"SLURM_STEP_NUM_NODES", "3"}, {"SLURM_STEP_NODELIST", "gpu[03-05,9],login"}};
  const RankPlace place = place_of(variables);
  EXPECT_EQ(place.size, 6);
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.address, "gpu03");
  EXPECT_EQ(place.port, 20000 + 802);
  EXPECT_EQ(place.folder, "");
  variables["SLURM_STEP_NUM_NODES"] = "1";
  EXPECT_NE(place_of(variables).folder.find("srun-100-2-0"), std::string::npos);
  EXPECT_EQ(place_of(variables).local_size, 6);
}

TEST(RankPlace, the_first_host_of_a_list) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("a[7,9]"), "a7");
  EXPECT_EQ(first_host("x,a[7,9]"), "x");
}

TEST(RankPlace, a_rank_beyond_the_size_is_refused_by_name) {
  EXPECT_EQ(refusal({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
            "the environment has RANK=2: must be a whole number from 0 to 1");
  EXPECT_EQ(refusal({{"RANK", "x"}, {"WORLD_SIZE", "2"}}),
            "the environment has RANK=x: must be a whole number from 0 to 1");
}

}  // namespace
}  // namespace bilevel::test
