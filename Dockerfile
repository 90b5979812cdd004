# docker build -t tcm --build-arg CPU_WHEELS=ADDRESS .
# docker build -t tcm:cuda --build-arg VARIANT=cuda .
# docker run --rm --user "$(id -u)" -v "$PWD:/data" tcm fit photos cliparts
# docker run --rm --gpus all -v "$PWD:/data" tcm:cuda fit photos cliparts
ARG PYTHON=3.12
ARG VARIANT=cpu

FROM python:${PYTHON}-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim AS environment
ARG VARIANT
ARG CPU_WHEELS=
COPY constraints.txt /constraints.txt
RUN python -m venv /opt/tcm
ENV PATH=/opt/tcm/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_CONSTRAINT=/constraints.txt
# The usual wheels of PyTorch for Linux contain CUDA, several GB of it. CPU_WHEELS is the address of an index of wheels
# without it; PyTorch's page on installation has one.
RUN case "$VARIANT" in \
      cpu) python -m pip install torch torchvision ${CPU_WHEELS:+--extra-index-url "$CPU_WHEELS"} ;; \
      cuda) python -m pip install torch torchvision ;; \
      *) echo "VARIANT is $VARIANT; give cpu or cuda" >&2; exit 2 ;; \
    esac
COPY --from=wheel /wheels /wheels
RUN python -m pip install "$(ls /wheels/tcm-*.whl)[export]"

FROM python:${PYTHON}-slim
ARG VARIANT
# On a GPU, long runs compile their networks, which needs a C compiler.
RUN if [ "$VARIANT" = cuda ]; then \
      apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*; \
    fi
COPY --from=environment /opt/tcm /opt/tcm
# Any user may write the caches: docker run --user gives the results to the owner of the folder.
RUN useradd --create-home tcm && mkdir --mode 1777 /cache && mkdir /data && chown tcm /data
ENV PATH=/opt/tcm/bin:$PATH XDG_CACHE_HOME=/cache HF_HOME=/cache/huggingface MPLCONFIGDIR=/cache/matplotlib
USER tcm
WORKDIR /data
ENTRYPOINT ["tcm"]
CMD ["--help"]
