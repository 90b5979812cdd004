"""The runs of a suite: the paper's protocol, one stage 1 per pair of domains, errors before the work."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from PIL import Image

from tcm.bench.config import DIGITS_KS, SuiteConfig, SuiteMechanisms, has_small_images, method_settings
from tcm.bench.plan import Job, in_suite_fields, plan_jobs
from tcm.bench.tasks import suite_benchmark
from tcm.classifier.train_config import TrainConfig
from tcm.data.benchmarks import BENCHMARKS, Benchmark
from tcm.errors import InputError
from tcm.mechanisms.distance import WatchConfig
from tcm.mechanisms.train import MechanismsConfig, bank_config
from tcm.methods import METHODS
from tcm.nn.backbone import BackboneConfig

DOMAINS = ("Art", "Clipart", "Product", "Real World")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Office-Home with two classes of one image."""
    folder = tmp_path_factory.mktemp("data") / "office-home"
    for domain in DOMAINS:
        for name in ("Bed", "Chair"):
            (folder / domain / name).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(folder / domain / name / "0.png")
    return folder


def jobs(benchmark: str, config: SuiteConfig, out: Path = Path("/suite")) -> dict[str, Job]:
    settings = method_settings(has_small_images(benchmark.lower(), config), suite_benchmark(benchmark))
    return {job.name: job for job in plan_jobs(benchmark, config, settings, out)}


@pytest.mark.filterwarnings("ignore:.*Office-Home")
def test_the_papers_protocol_on_office_home(root: Path):
    found = jobs("office-home", SuiteConfig(root=root, tasks="Ar2Cl,C>A", methods="erm,baseline,tcm", seeds=2))
    assert list(found) == [
        "runs/A2C/erm-s0",
        "mechanisms/A-C/paper-k1",
        "runs/A2C/baseline-k1-s0",
        "mechanisms/A-C/paper-k4",
        "runs/A2C/tcm-k4-s0",
        "runs/A2C/erm-s1",
        "runs/A2C/baseline-k1-s1",
        "runs/A2C/tcm-k4-s1",
        *(f"runs/C2A/{name}-s{seed}" for seed in range(2) for name in ("erm", "baseline-k1", "tcm-k4")),
    ]
    stage1, stage2 = found["mechanisms/A-C/paper-k4"], found["runs/C2A/tcm-k4-s1"]
    assert isinstance(stage1.config, MechanismsConfig)
    assert (stage1.config.steps, stage1.config.batch, stage1.config.k) == (200 * 4365 // 4, 4, 4)
    assert (stage1.config.data.source, stage1.config.data.target) == ("Art", "Clipart")
    assert isinstance(stage2.config, TrainConfig)
    assert (stage2.config.steps, stage2.config.batch, stage2.config.seed) == (4_000, 32, 1)
    baseline = found["runs/C2A/baseline-k1-s1"].config
    assert isinstance(baseline, TrainConfig)
    assert baseline.steps == 10_000
    assert (stage2.config.data.source, stage2.config.data.target) == ("Clipart", "Art")
    assert (stage2.needs, stage2.config.mechanisms) == (stage1.name, Path("/suite") / stage1.name)
    assert len(jobs("office-home", SuiteConfig(root=root, methods="dann", seeds=1))) == 12


@pytest.mark.filterwarnings("ignore:.* has .* (images|classes), ")
@pytest.mark.parametrize("published", BENCHMARKS, ids=lambda published: published.name)
def test_every_task_of_every_benchmark_can_be_run(published: Benchmark, tmp_path: Path):
    for domain in published.domains:
        for name in ("bed", "chair"):
            (tmp_path / domain.name / name).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(tmp_path / domain.name / name / "0.png")
    found = jobs(published.name, SuiteConfig(root=tmp_path, methods="tcm", seeds=1))
    assert len([job for job in found.values() if job.method]) == len(published.tasks)
    pairs = {frozenset((task.source, task.target)) for task in published.tasks}
    assert len([job for job in found.values() if not job.method]) == len(pairs)


def test_the_whole_suite_of_the_digits():
    found = jobs("digits", SuiteConfig())
    runs = [job for job in found.values() if job.method]
    assert {job.method for job in runs} == set(METHODS)
    assert len(runs) == 3 * (len(METHODS) + len(DIGITS_KS))
    assert {job.config.k for job in found.values() if isinstance(job.config, MechanismsConfig)} == {4, *DIGITS_KS}
    assert found["runs/digits/tcm-paper-k4-s0"].method == "tcm-paper"
    assert not found["runs/digits/tcm-control-s0"].needs
    with_four = {job.needs for job in runs if "-k4-" in job.name}
    assert with_four == {"mechanisms/digits/paper-k4"}  # one stage 1 serves all


def test_everything_can_be_set():
    mechanisms = SuiteMechanisms(steps=30, batch=6, lr=1e-4, warmup=5, crop=28)
    config = SuiteConfig(
        methods="dann,tcm", seeds=1, k=3, ks="", steps=40, batch=16, held_out=0.1, mechanisms=mechanisms
    )
    settings = method_settings(small=True)
    settings = replace(settings, dann=replace(settings.dann, trade_off=0.5))
    first, second, third = plan_jobs("digits", config, settings, Path("/suite"))
    assert (first.config.steps, first.config.batch) == (40, 16)
    assert isinstance(first.config, TrainConfig)
    assert (first.config.method.trade_off, first.config.held_out) == (0.5, 0.1)
    assert isinstance(second.config, MechanismsConfig)
    assert (second.config.steps, second.config.batch, second.config.k, second.config.data.crop) == (30, 6, 3, 28)
    assert (second.config.bank.lr, second.config.bank.critic_lr, second.config.bank.warmup) == (1e-4, 1e-4, 5)
    assert third.needs == second.name


def test_a_quick_suite_trains_a_twentieth_and_half_of_it_is_competition():
    found = jobs("digits", SuiteConfig(methods="tcm", seeds=1, ks="", quick=True))
    stage1, stage2 = found.values()
    assert (stage1.config.steps, stage2.config.steps) == (10, 9)
    assert isinstance(stage1.config, MechanismsConfig)
    assert stage1.config.bank.warmup == 5


@pytest.mark.filterwarnings("ignore:.*Office-Home")
@pytest.mark.parametrize(
    ("benchmark", "options", "said"),
    [
        ("office-hone", {}, r'no benchmark "office-hone"; the nearest is office-home; there are .*digits'),
        ("office-home", {}, "needs `root`"),
        ("digits", {"root": Path("x")}, "leave it out"),
        ("digits", {"methods": "erm,DNAN"}, r'no method "DNAN"; the nearest is dan'),
        ("digits", {"methods": "erm,dnan"}, r'no method "dnan"; the nearest is dan'),
        ("digits", {"methods": ","}, "name some of erm"),
        ("digits", {"seeds": 0}, "`seeds` is 0; give 1 or more"),
        ("digits", {"ks": "2,x"}, '`ks` has "x"'),
        ("digits", {"ks": "0"}, '`ks` has "0"'),
        ("digits", {"steps": -1}, "runs/digits/erm-s0: `steps` is -1"),
        ("digits", {"steps": 0}, "runs/digits/erm-s0: `steps` is 0"),
        ("digits", {"area": 3.0}, "runs/digits/erm-s0: `area` is 3.0; give a share"),
        ("digits", {"size": 16}, "runs/digits/erm-s0: `size` is 16; give 32"),
        ("digits", {"evaluate_every": 0}, "`evaluate_every` is 0"),
        ("digits", {"mechanisms": SuiteMechanisms(steps=0)}, "mechanisms/digits/.*`mechanisms.steps` is 0"),
        ("digits", {"mechanisms": SuiteMechanisms(batch=0)}, "`mechanisms.batch` is 0"),
        ("digits", {"k": 0}, "`k` is 0"),
        ("digits", {"mechanisms": SuiteMechanisms(lr=-1.0)}, "`mechanisms.lr` is -1.0"),
        ("digits", {"mechanisms": SuiteMechanisms(crop=40)}, "mechanisms/digits/.*`mechanisms.crop` is 40"),
        ("digits", {"methods": "tcm", "crop": 40}, "runs/digits/tcm.*: `crop` is 40"),
        ("digits", {"mechanisms": SuiteMechanisms(watch=1)}, "`mechanisms.watch` is 1; give 2 or more"),
        ("digits", {"tasks": "A2C"}, r'no task "A2C"; the nearest is digits'),
        ("office-home", {"root": "here", "tasks": ","}, r'`tasks` is ","; name some of A>C, A>P'),
        ("office-home", {"root": "here", "tasks": "A2Q"}, r'no task "A2Q"; the nearest is A'),
    ],
)
def test_mistakes_are_found_before_anything_runs(root: Path, benchmark: str, options: dict, said: str):
    options = {**options, "root": root} if options.get("root") == "here" else options
    with pytest.raises(InputError, match=said):
        jobs(benchmark, SuiteConfig(**options))


def test_a_wrong_method_is_reported_before_warnings_about_the_data(root: Path, recwarn: pytest.WarningsRecorder):
    with pytest.raises(InputError, match="the nearest is tcm"):
        jobs("office-home", SuiteConfig(root=root, methods="tmc"))
    assert not recwarn


@pytest.mark.filterwarnings("ignore:.*Office-Home")
def test_benchmarks_and_methods_may_be_spelled_in_any_way(root: Path):
    assert list(jobs("Digits", SuiteConfig(methods="DANN,dann,ERM", seeds=1))) == [
        "runs/digits/dann-s0",
        "runs/digits/erm-s0",
    ]
    config = SuiteConfig(root=root, tasks="a2c", methods="CDAN_E", seeds=1)
    assert list(jobs("OfficeHome", config)) == ["runs/A2C/cdan-e-s0"]
    assert len(jobs("OfficeHome", replace(config, tasks="a2c, all"))) == 12


@pytest.mark.filterwarnings("ignore:.*Office-Home")
def test_small_images_of_a_benchmark_have_small_networks(root: Path):
    for small, size, crop in ((True, 32, None), (True, None, 56), (False, None, None)):
        config = SuiteConfig(root=root, tasks="A2C", methods="tcm-paper", seeds=1, size=size, crop=crop)
        assert has_small_images("office-home", config) == small
        settings = method_settings(small)
        first, second = plan_jobs("office-home", config, settings, Path("/suite"))
        assert isinstance(first.config, MechanismsConfig)
        assert isinstance(second.config, TrainConfig)
        assert first.config.bank == bank_config("paper", small)
        assert second.config.method == METHODS["tcm-paper"].for_images(small)
        assert second.config.resolved().backbone.name == ("small" if small else "resnet50.tv_in1k")


def test_the_image_settings_of_a_suite_reach_its_runs_and_errors_name_them():
    config = SuiteConfig(methods="erm,tcm", seeds=1, ks="", area=0.2, on_bad_image="skip", cache=Path("/cache"))
    found = jobs("digits", config)
    for job in found.values():
        assert (job.config.data.on_bad_image, job.config.data.cache) == ("skip", Path("/cache"))
        assert job.config.data.area == (0.2 if job.method else None)
    for job in found.values():
        error = in_suite_fields(job, InputError("or pass `data.on_bad_image` skip, or `data.target_labels` ignore"))
        assert str(error) == "or pass `on_bad_image` skip, or `target_labels` ignore"


def test_a_cache_that_is_a_file_is_reported_before_any_run(tmp_path: Path):
    (tmp_path / "x").write_text("precious")
    with pytest.raises(InputError, match=r" `cache`.* \S+/x is a file; name a folder$"):
        jobs("digits", SuiteConfig(methods="erm", seeds=1, cache=tmp_path / "x"))


def test_distances_of_stage_1_are_measured_in_the_features_of_the_backbone():
    backbone = BackboneConfig("resnet18", pretrained=False)
    plain = SuiteConfig(methods="tcm", seeds=1, ks="", backbone=backbone)
    for images, expected in ((0, BackboneConfig()), (50, backbone)):
        config = replace(plain, mechanisms=SuiteMechanisms(watch=images))
        watched = jobs("digits", config)["mechanisms/digits/paper-k4"].config
        assert isinstance(watched, MechanismsConfig)
        assert (watched.watch, watched.backbone) == (WatchConfig(images), expected)
    job = jobs("digits", plain)["mechanisms/digits/paper-k4"]
    assert str(in_suite_fields(job, InputError("watch.images", "is 1"))) == "`mechanisms.watch` is 1"
    assert str(in_suite_fields(job, InputError("lower `bank.lr`"))) == "lower `mechanisms.lr`"


def test_a_wrong_setting_of_a_method_is_reported_by_its_field():
    settings = method_settings(small=True)
    settings = replace(settings, tcm_paper=replace(settings.tcm_paper, alpha=-1.0))
    with pytest.raises(InputError, match=r"runs/digits/tcm-paper-k4-s0: `method\.tcm_paper\.alpha` is -1"):
        plan_jobs("digits", SuiteConfig(methods="tcm-paper"), settings, Path("/suite"))


@pytest.mark.parametrize(
    ("benchmark", "weight", "width", "rate"),
    [
        ("office-home", 30.0, 2048, 3e-3),
        ("office-31", 10.0, 1024, 3e-3),
        ("imageclef-da", 1.0, 1024, 1e-2),
        ("visda-2017", 1.0, 1024, 3e-3),
    ],
)
def test_settings_that_belong_to_a_benchmark(benchmark: str, weight: float, width: int, rate: float):
    found, usual = method_settings(small=False, benchmark=benchmark), method_settings(small=False)
    assert (found.mcd.trade_off, found.mcd.decay, found.mcd.backbone_momentum) == (weight, False, 0.0)
    assert (found.mdd.recipe.bottleneck, found.mdd.hidden, found.mdd.recipe.lr) == (width, width, 0.004)
    for name in ("baseline", "tcm_paper", "tcm_release"):
        ours, its = getattr(found, name), getattr(usual, name)
        assert (ours.recipe.lr, ours.recipe.lr * ours.recipe.pretrained_lr) == (rate, pytest.approx(rate / 10))
        assert replace(ours, recipe=its.recipe) == its
    assert (found.dann, found.tcm) == (usual.dann, usual.tcm)


@pytest.mark.parametrize("benchmark", ["digits", "office-home"])
def test_small_images_have_no_settings_of_a_benchmark(benchmark: str):
    assert asdict(method_settings(True, benchmark)) == asdict(method_settings(True))


@pytest.mark.filterwarnings("ignore:.*Office-Home")
def test_methods_with_their_own_number_of_steps_on_office_home(root: Path):
    config = SuiteConfig(root=root, tasks="A2C", methods="tcm-control,tcm-paper,tcm-release", seeds=1)

    def steps(config: SuiteConfig) -> dict[str, int | None]:
        return {job.method: job.config.steps for job in jobs("office-home", config).values() if job.method}

    assert steps(config) == {"tcm-control": 4_000, "tcm-paper": 10_000, "tcm-release": 15_000}
    assert steps(replace(config, quick=True)) == {"tcm-control": 200, "tcm-paper": 500, "tcm-release": 750}
    assert steps(replace(config, steps=7)) == {"tcm-control": 7, "tcm-paper": 7, "tcm-release": 7}


@pytest.mark.filterwarnings("ignore:.*Office-Home")
def test_the_authors_recipe_sets_the_method_its_steps_and_its_batch(root: Path, tmp_path: Path):
    config = SuiteConfig(root=root, tasks="A2C", methods="mcc,erm", seeds=1, recipe="authors")
    settings = method_settings(False, "office-home", "authors")
    mcc, erm = (job.config for job in plan_jobs("office-home", config, settings, tmp_path / "out"))
    assert isinstance(mcc, TrainConfig)
    assert (mcc.steps, mcc.batch) == (METHODS["mcc"].authors_steps, METHODS["mcc"].authors_batch) == (30_000, 36)
    assert mcc.method == METHODS["mcc"].authors() != METHODS["mcc"]()
    assert (erm.steps, erm.batch) == (10_000, 32)
    shorter = replace(config, steps=7, batch=5)
    first, *_ = plan_jobs("office-home", shorter, settings, tmp_path / "out")
    assert (first.config.steps, first.config.batch) == (7, 5)


def test_small_images_have_no_authors_recipe():
    with pytest.raises(InputError, match="photographs"):
        method_settings(True, "digits", "authors")
